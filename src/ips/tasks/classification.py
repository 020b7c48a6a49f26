"""One class per image, any number of labels, or yes and no.

Letters: B images, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from ips.tasks.task import Answer, ClassKind, Score, Task

if TYPE_CHECKING:
    from torchmetrics import Metric

_DEFAULT_SCORE: dict[ClassKind, Score] = {
    "multiclass": "accuracy",
    "multilabel": "exact-match",
    "binary": "auc",
    "ordinal": "kappa",
}


#: Labels are lopsided if the largest class has this many times the images of the smallest.
LOPSIDED = 3


@dataclass(frozen=True)
class Classification(Task):
    """One class per image, any number of labels, or yes and no.

    Args:
        kind: multiclass, multilabel or binary. A binary task has a single logit, that of its
            second class, the positive one.
        classes: C; ignored for a binary task, which always has two classes.
        names: names of the classes; None to call them by their number.
        score: metric to report; None for accuracy (multiclass), exact match (multilabel) or AUC
            (binary). Exact match counts an image only if all its labels are right.
    """

    kind: ClassKind
    classes: int
    names: tuple[str, ...] | None = None
    score: Score | None = None

    @property
    def has_one_class(self) -> bool:
        """Whether labels are class numbers, and the probabilities of the classes add up to 1."""
        return self.kind == "multiclass"

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

    @property
    def missing(self) -> Tensor:
        """The label of an image that has none: -1 for a class number, else nan."""
        if self.has_one_class:
            return torch.tensor(-1)
        return torch.full((self.classes,) if self.kind == "multilabel" else (), torch.nan)

    def known(self, labels: Tensor) -> Tensor:
        """Whether each of B images has a label, as bools ``(B,)``."""
        return labels >= 0 if self.has_one_class else super().known(labels)

    def _loss(
        self, logits: Tensor, labels: Tensor, *, weights: Tensor | None, smoothing: float
    ) -> Tensor:
        reduction = "mean" if weights is None else "none"
        if self.has_one_class:
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

        >>> labels = torch.tensor([[0.0, 1.0], [0.0, 0.0]])
        >>> Classification("multilabel", 2).answer_counts(labels).tolist()
        [[2, 0], [1, 1]]
        """
        present = self.one_hot(labels[self.known(labels)])  # (B, C)
        counts = present.sum(dim=0)
        if self.kind == "multilabel":
            return torch.stack([len(present) - counts, counts], dim=1)
        return counts[None]

    def answer_weights(self, weights: Tensor, labels: Tensor) -> Tensor:
        """Weights ``(questions, answers)`` of the labels of B images, ``(B, questions)``."""
        answers = labels.long().view(len(labels), len(weights))
        return weights[torch.arange(len(weights), device=weights.device), answers]

    def answer_statistics(self, labels: Tensor) -> Tensor:
        return self.answer_counts(labels)

    def constant_loss(
        self, statistics: Tensor, *, weights: Tensor | None = None, smoothing: float = 0.0
    ) -> Tensor:
        """The loss of the labels' frequencies as probabilities, from `answer_counts`."""
        share = statistics.double()  # (questions, answers)
        share = share / share.sum(dim=1, keepdim=True)
        if weights is not None:
            share = share * weights.to(share)
        total = share.sum(dim=1, keepdim=True)
        target = share * (1 - smoothing) + total * smoothing / share.shape[1]
        return -torch.xlogy(target, target / total).sum(dim=1).mean()

    def activation(self, logits: Tensor) -> Tensor:
        """Logits to probabilities, both ``(..., outputs)``."""
        return logits.softmax(dim=-1) if self.kind == "multiclass" else torch.sigmoid(logits)

    def divergence(self, logits: Tensor, usual: Tensor) -> Tensor:
        """How much answers ``(..., outputs)`` differ from ``usual`` ones, in nats: ``(...)``.

        The Kullback-Leibler divergence of their probabilities, summed over the labels of a
        multilabel task.
        """
        if self.has_one_class:
            p, q = logits.log_softmax(dim=-1), usual.log_softmax(dim=-1)
            return (p.exp() * (p - q)).sum(dim=-1)
        sides = [(F.logsigmoid(sign * logits), F.logsigmoid(sign * usual)) for sign in (1, -1)]
        return torch.stack([(p.exp() * (p - q)).sum(dim=-1) for p, q in sides]).sum(dim=0)

    def class_probabilities(self, probabilities: Tensor) -> Tensor:
        """Probabilities ``(..., outputs)`` to ``(..., C)``; a binary task gets a second column.

        >>> Classification("binary", 2).class_probabilities(torch.tensor([0.75])).tolist()
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
            case _:
                best = class_probabilities.argmax(dim=-1)
                return F.one_hot(best, self.classes).bool()

    def one_hot(self, labels: Tensor) -> Tensor:
        """Labels as bools ``(..., C)``: class numbers ``(...)``, or ``(..., C)`` if multilabel."""
        if self.kind == "multilabel":
            return labels.bool()
        return F.one_hot(labels.long(), len(self.class_names)).bool()

    def targets(self, labels: Tensor) -> Tensor:
        """The classes of B images as bools ``(B, C)``; all False for an image without a label."""
        known = self.known(labels)
        present = torch.zeros(len(labels), len(self.class_names), dtype=torch.bool)
        present[known.cpu()] = self.one_hot(labels[known]).cpu()
        return present

    def answer(self, columns: Tensor) -> Answer:
        return self.truth(self.decide(columns))

    def truth(self, target: Tensor) -> Answer:
        """Names of the classes that are True in ``(C,)``; a list only for a multilabel task."""
        names = [name for name, here in zip(self.class_names, target, strict=True) if here]
        return names if self.kind == "multilabel" else names[0]

    def errors(self, columns: Tensor, targets: Tensor) -> Tensor:
        """Cross-entropy of the labels, the mean over labels of a multilabel task."""
        loss = -columns.clamp(1e-12, 1).log() * targets  # (B, C)
        if self.kind == "multilabel":
            loss = (loss - (1 - columns).clamp(1e-12, 1).log() * ~targets) / self.classes
        return loss.sum(dim=1)

    def metric(self) -> Metric:
        from torchmetrics import Accuracy, ExactMatch

        from ips.metrics import AUC

        # Probabilities and labels are valid by construction, so their validation is skipped.
        options = {"num_classes": self.classes, "num_labels": self.classes, "validate_args": False}
        options["sync_on_compute"] = False  # every process adds the images of all
        match self.metric_name:
            case "accuracy":
                average = "micro" if self.kind == "multiclass" else "macro"
                return Accuracy(task=self.kind, average=average, **options)
            case "exact-match":
                return ExactMatch(task=self.kind, **options)
            case _:
                return AUC()

    def _update(self, metric: Metric, logits: Tensor, labels: Tensor) -> None:
        probabilities = self.activation(logits)
        if self.metric_name == "auc":
            # The first class of a binary task would only repeat the area of the second.
            metric.update(probabilities, self.one_hot(labels)[:, -self.outputs :])
            return
        if self.kind == "binary":
            probabilities = probabilities.view_as(labels)
        metric.update(probabilities, labels.long())

    def only_class(self, present: Tensor) -> str | None:
        """What all images of ``(B, C)`` bools from `one_hot` have in common, if they are all equal.

        >>> task = Classification("binary", 2, names=("normal", "tumor"))
        >>> task.only_class(task.one_hot(torch.tensor([1.0, 1.0])))
        'only class tumor'
        """
        if not bool((present == present[0]).all()):
            return None
        if self.kind == "multilabel":
            return "the same labels for every image"
        return f"only class {self.class_names[int(present[0].int().argmax())]}"

    def nothing_to_learn(self, labels: Tensor) -> str | None:
        return self.only_class(self.one_hot(labels))

    def absent(self, labels: Tensor) -> list[str]:
        """Classes that none of the images has."""
        some = self.one_hot(labels).any(dim=0).tolist()
        return [name for name, there in zip(self.class_names, some, strict=True) if not there]
