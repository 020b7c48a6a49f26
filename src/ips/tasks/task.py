"""What all kinds of tasks have in common.

An image may lack the label of a task, if it has that of another. Such a label is nan, or -1 where
labels are class numbers. It is left out of the loss and of the metric.

Letters: B images, C columns of a prediction, such as classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Literal

from torch import Tensor

if TYPE_CHECKING:
    from torchmetrics import Metric

ClassKind = Literal["multiclass", "multilabel", "binary", "ordinal"]
Kind = ClassKind | Literal["regression", "survival"]
Score = Literal["accuracy", "exact-match", "auc", "kappa", "r2", "pearson", "concordance"]
#: A class, the labels of a multilabel task, or a number.
Answer = str | list[str] | float


class Task(ABC):
    """One prediction per image."""

    kind: Kind
    has_probabilities: ClassVar[bool] = True  # whether the columns of a prediction are some

    @property
    @abstractmethod
    def class_names(self) -> list[str]:
        """Names of the C columns of a prediction, such as the classes."""

    @property
    @abstractmethod
    def metric_name(self) -> Score:
        """The metric to report first, and to choose the best epoch by."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Number of logits of the task's head."""

    @property
    @abstractmethod
    def missing(self) -> Tensor:
        """The label of an image that has none."""

    def known(self, labels: Tensor) -> Tensor:
        """Whether each of B images has a label, as bools ``(B,)``."""
        missing = labels.isnan()
        return ~(missing.any(dim=1) if labels.dim() > 1 else missing)

    def teaches(self, labels: Tensor) -> bool:
        """Whether there is something to learn from the labels of a batch."""
        return bool(self.known(labels).any())

    def loss(
        self,
        logits: Tensor,
        labels: Tensor,
        *,
        weights: Tensor | None = None,
        smoothing: float = 0.0,
    ) -> Tensor:
        """Mean loss of ``(B, outputs)`` logits over the images with a label; 0 without any.

        Args:
            weights: weight of each answer of a classification, in the shape of
                `Classification.answer_counts`; None for equal ones.
            smoothing: share of a label that is spread over all classes.
        """
        if not self.teaches(labels):
            return (logits * 0).sum()  # with a gradient, which several devices expect
        known = self.known(labels)
        if not known.all():
            logits, labels = logits[known], labels[known]
        return self._loss(logits, labels, weights=weights, smoothing=smoothing)

    @abstractmethod
    def _loss(
        self, logits: Tensor, labels: Tensor, *, weights: Tensor | None, smoothing: float
    ) -> Tensor:
        """`loss` of labels that all exist."""

    @abstractmethod
    def answer_statistics(self, labels: Tensor) -> Tensor:
        """What `constant_loss` needs to know about the labels of a batch; batches are added."""

    @abstractmethod
    def constant_loss(
        self, statistics: Tensor, *, weights: Tensor | None = None, smoothing: float = 0.0
    ) -> Tensor:
        """The loss of the best answer that ignores the image, from `answer_statistics`."""

    @abstractmethod
    def activation(self, logits: Tensor) -> Tensor:
        """Logits to probabilities or values, both ``(..., outputs)``."""

    @abstractmethod
    def divergence(self, logits: Tensor, usual: Tensor) -> Tensor:
        """How much answers ``(..., outputs)`` differ from ``usual`` ones, in nats: ``(...)``."""

    def class_probabilities(self, probabilities: Tensor) -> Tensor:
        """What `activation` returns, ``(..., outputs)``, as the columns ``(..., C)``."""
        return probabilities

    def class_activation(self, logits: Tensor) -> Tensor:
        """Logits ``(..., outputs)`` to the columns of a prediction ``(..., C)``."""
        return self.class_probabilities(self.activation(logits))

    @abstractmethod
    def targets(self, labels: Tensor) -> Tensor:
        """What predictions for B images are compared with, ``(B, ...)``."""

    @abstractmethod
    def answer(self, columns: Tensor) -> Answer:
        """The answer that the columns ``(C,)`` of a prediction mean."""

    @abstractmethod
    def truth(self, target: Tensor) -> Answer:
        """The right answer, from one row of `targets`."""

    def read_truth(self, text: str) -> list[float]:
        """The row of `targets` that `truth` means, of a task without classes; "" is nan.

        Raises:
            ValueError: if it is no such text.
        """
        raise NotImplementedError

    @abstractmethod
    def errors(self, columns: Tensor, targets: Tensor) -> Tensor:
        """How wrong each of B predictions ``(B, C)`` is, to sort examples by, ``(B,)``."""

    @abstractmethod
    def metric(self) -> Metric:
        """A new metric, to be updated with `update`."""

    def update(self, metric: Metric, logits: Tensor, labels: Tensor) -> None:
        """Add the images of a batch that have a label to ``metric``."""
        known = self.known(labels)
        if not known.all():
            logits, labels = logits[known], labels[known]
        if len(labels):
            self._update(metric, logits.detach().float(), labels)

    @abstractmethod
    def _update(self, metric: Metric, logits: Tensor, labels: Tensor) -> None:
        """`update` with labels that all exist."""

    @abstractmethod
    def nothing_to_learn(self, labels: Tensor) -> str | None:
        """What labels that all exist have in common, if nothing can be learnt from them."""

    def absent(self, labels: Tensor) -> list[str]:
        """What none of the labels shows, such as names of classes; labels all exist."""
        return []
