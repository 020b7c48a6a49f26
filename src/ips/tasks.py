"""A task owns its loss, its activation and its metric; networks emit logits.

Letters: B images, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.classification import (
    BinaryAccuracy,
    BinaryAUROC,
    MulticlassAccuracy,
    MulticlassAUROC,
    MultilabelAccuracy,
    MultilabelAUROC,
    MultilabelExactMatch,
)

Kind = Literal["multiclass", "multilabel", "binary"]
Score = Literal["accuracy", "exact-match", "auc"]

_USUAL: dict[Kind, Score] = {"multiclass": "accuracy", "multilabel": "exact-match", "binary": "auc"}


@dataclass(frozen=True)
class Task:
    """One thing to predict of an image.

    Args:
        kind: multiclass, multilabel or binary.
        classes: C; a binary task has one logit.
        score: what to report, None for what is usual for the kind. Exact-match counts an image
            only if all its labels are right at threshold 0.5.
    """

    kind: Kind
    classes: int
    score: Score | None = None

    @property
    def reported(self) -> Score:
        """What the task's score is."""
        return self.score or _USUAL[self.kind]

    @property
    def outputs(self) -> int:
        """How many logits the task's head gives."""
        return 1 if self.kind == "binary" else self.classes

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Mean over the batch of ``(B, C)`` logits against the labels."""
        if self.kind == "multiclass":
            return F.cross_entropy(logits, labels)
        return F.binary_cross_entropy_with_logits(logits, labels.view_as(logits))

    def activation(self, logits: Tensor) -> Tensor:
        """``(..., C)`` logits to probabilities."""
        return logits.softmax(dim=-1) if self.kind == "multiclass" else torch.sigmoid(logits)

    def metric(self) -> Metric:
        """A fresh metric; it takes probabilities and labels, which are right by construction."""
        match self.kind, self.reported:
            case "multiclass", "accuracy":
                return MulticlassAccuracy(self.classes, average="micro", validate_args=False)
            case "multiclass", _:
                return MulticlassAUROC(self.classes, validate_args=False)
            case "multilabel", "accuracy":
                return MultilabelAccuracy(self.classes, validate_args=False)
            case "multilabel", "auc":
                return MultilabelAUROC(self.classes, validate_args=False)
            case "multilabel", _:
                return MultilabelExactMatch(self.classes, validate_args=False)
            case _, "accuracy":
                return BinaryAccuracy(validate_args=False)
            case _:
                return BinaryAUROC(validate_args=False)

    def update(self, metric: Metric, logits: Tensor, labels: Tensor) -> None:
        """Add a batch to ``metric``."""
        probabilities = self.activation(logits.detach().float())
        if self.kind == "binary":
            probabilities = probabilities.view_as(labels)
        metric.update(probabilities, labels.long())
