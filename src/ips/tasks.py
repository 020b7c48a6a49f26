"""What a task is: its classes, loss, activation, decision and metric. Networks emit logits.

Letters: B images, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ips.config import TaskConfig

if TYPE_CHECKING:
    from torchmetrics import Metric

Kind = Literal["multiclass", "multilabel", "binary"]
Score = Literal["accuracy", "exact-match", "auc"]

_DEFAULT_SCORE: dict[Kind, Score] = {
    "multiclass": "accuracy",
    "multilabel": "exact-match",
    "binary": "auc",
}


#: Labels are lopsided if the largest class has this many times the images of the smallest.
LOPSIDED = 3


@dataclass(frozen=True)
class Task:
    """One prediction per image.

    Args:
        kind: multiclass, multilabel or binary. A binary task has a single logit, that of its
            second class, the positive one.
        classes: C; ignored for a binary task, which always has two classes.
        names: names of the classes; None to call them by their number.
        score: metric to report; None for accuracy (multiclass), exact match (multilabel) or AUC
            (binary). Exact match counts an image only if all its labels are right.
    """

    kind: Kind
    classes: int
    names: tuple[str, ...] | None = None
    score: Score | None = None

    @property
    def class_names(self) -> list[str]:
        """Names of the C classes; two for a binary task."""
        count = 2 if self.kind == "binary" else self.classes
        return list(self.names or map(str, range(count)))

    @property
    def metric_name(self) -> Score:
        return self.score or _DEFAULT_SCORE[self.kind]

    @property
    def outputs(self) -> int:
        """Number of logits of the task's head."""
        return 1 if self.kind == "binary" else self.classes

    def loss(
        self,
        logits: Tensor,
        labels: Tensor,
        *,
        weights: Tensor | None = None,
        smoothing: float = 0.0,
    ) -> Tensor:
        """Mean loss of ``(B, outputs)`` logits over the batch.

        Args:
            weights: weight of each answer, in the shape of `answer_counts`; None for equal ones.
            smoothing: share of a label that is spread over all classes.
        """
        reduction = "mean" if weights is None else "none"
        if self.kind == "multiclass":
            losses = F.cross_entropy(logits, labels, reduction=reduction, label_smoothing=smoothing)
        else:
            targets = labels.view_as(logits)
            if smoothing:
                targets = targets * (1 - smoothing) + smoothing / 2
            losses = F.binary_cross_entropy_with_logits(logits, targets, reduction=reduction)
        if weights is None:
            return losses
        # Not divided by the sum of the weights in the batch, which would undo them in small ones.
        chosen = self.answer_weights(weights.to(logits.device), labels)  # (B, questions)
        return (losses.view_as(chosen) * chosen).mean()

    def answer_counts(self, labels: Tensor) -> Tensor:
        """Number of images with each answer, ``(questions, answers)``.

        A multilabel task asks C questions with the answers no and yes, the others ask only one.

        >>> Task("multilabel", 2).answer_counts(torch.tensor([[0.0, 1.0], [0.0, 0.0]])).tolist()
        [[2, 0], [1, 1]]
        """
        present = self.one_hot(labels)  # (B, C)
        counts = present.sum(dim=0)
        if self.kind == "multilabel":
            return torch.stack([len(present) - counts, counts], dim=1)
        return counts[None]

    def answer_weights(self, weights: Tensor, labels: Tensor) -> Tensor:
        """Weights ``(questions, answers)`` of the labels of B images, ``(B, questions)``."""
        answers = labels.long().view(len(labels), len(weights))
        return weights[torch.arange(len(weights), device=weights.device), answers]

    def activation(self, logits: Tensor) -> Tensor:
        """Logits to probabilities, both ``(..., outputs)``."""
        return logits.softmax(dim=-1) if self.kind == "multiclass" else torch.sigmoid(logits)

    def divergence(self, logits: Tensor, usual: Tensor) -> Tensor:
        """How much answers ``(..., outputs)`` differ from ``usual`` ones, in nats: ``(...)``.

        The Kullback-Leibler divergence of their probabilities, summed over the labels of a
        multilabel task.
        """
        if self.kind == "multiclass":
            p, q = logits.log_softmax(dim=-1), usual.log_softmax(dim=-1)
            return (p.exp() * (p - q)).sum(dim=-1)
        sides = [(F.logsigmoid(sign * logits), F.logsigmoid(sign * usual)) for sign in (1, -1)]
        return torch.stack([(p.exp() * (p - q)).sum(dim=-1) for p, q in sides]).sum(dim=0)

    def class_probabilities(self, probabilities: Tensor) -> Tensor:
        """Probabilities ``(..., outputs)`` to ``(..., C)``; a binary task gets a second column.

        >>> Task("binary", 2).class_probabilities(torch.tensor([0.75])).tolist()
        [0.25, 0.75]
        """
        if self.kind != "binary":
            return probabilities
        return torch.cat([1 - probabilities, probabilities], dim=-1)

    def class_activation(self, logits: Tensor) -> Tensor:
        """Logits ``(..., outputs)`` to class probabilities ``(..., C)``."""
        return self.class_probabilities(self.activation(logits))

    def decide(self, class_probabilities: Tensor) -> Tensor:
        """The predicted classes, as bools ``(..., C)``.

        A multilabel task predicts every label above 0.5, a binary task its second class above 0.5
        and its first class otherwise, as torchmetrics does; a multiclass task predicts the most
        probable class.
        """
        match self.kind:
            case "multilabel":
                return class_probabilities > 0.5
            case "binary":
                positive = class_probabilities[..., 1:] > 0.5
                return torch.cat([~positive, positive], dim=-1)
            case "multiclass":
                best = class_probabilities.argmax(dim=-1)
                return F.one_hot(best, self.classes).bool()

    def one_hot(self, labels: Tensor) -> Tensor:
        """Labels as bools ``(..., C)``: class numbers ``(...)``, or ``(..., C)`` if multilabel."""
        if self.kind == "multilabel":
            return labels.bool()
        return F.one_hot(labels.long(), len(self.class_names)).bool()

    def metric(self) -> Metric:
        """A new metric, to be updated with `update`."""
        from torchmetrics import Accuracy, ExactMatch

        from ips.metrics import AUC

        # Probabilities and labels are valid by construction, so their validation is skipped.
        options = {"num_classes": self.classes, "num_labels": self.classes, "validate_args": False}
        match self.metric_name:
            case "accuracy":
                average = "micro" if self.kind == "multiclass" else "macro"
                return Accuracy(task=self.kind, average=average, **options)
            case "exact-match":
                return ExactMatch(task=self.kind, **options)
            case "auc":
                return AUC()

    def update(self, metric: Metric, logits: Tensor, labels: Tensor) -> None:
        """Add a batch to ``metric``."""
        probabilities = self.activation(logits.detach().float())
        if self.metric_name == "auc":
            # The first class of a binary task would only repeat the area of the second.
            metric.update(probabilities, self.one_hot(labels)[:, -self.outputs :])
            return
        if self.kind == "binary":
            probabilities = probabilities.view_as(labels)
        metric.update(probabilities, labels.long())

    def only_class(self, present: Tensor) -> str | None:
        """What all images of ``(B, C)`` bools from `one_hot` have in common, if they are all equal.

        >>> task = Task("binary", 2, names=("normal", "tumor"))
        >>> task.only_class(task.one_hot(torch.tensor([1.0, 1.0])))
        'only class tumor'
        """
        if not bool((present == present[0]).all()):
            return None
        if self.kind == "multilabel":
            return "the same labels for every image"
        return f"only class {self.class_names[int(present[0].int().argmax())]}"


def build_tasks(configs: Mapping[str, TaskConfig]) -> dict[str, Task]:
    """The tasks that a config describes, by name."""
    return {
        name: Task(
            c.kind, c.classes, None if c.names is None else tuple(c.ordered(c.names)), c.metric
        )
        for name, c in configs.items()
    }
