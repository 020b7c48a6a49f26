"""Grades: classes in an order, such as the stages of a disease.

The network answers C - 1 questions: given that the grade is at least k, is it higher? (CORN: Shi,
Cao, Raschka 2023; continuation ratios in statistics.) Their answers multiply to probabilities of
the C grades, which add up to 1, so that the loss is the cross-entropy of the grade.

Letters: B images, C grades.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from ips.tasks.classification import Classification
from ips.tasks.task import Score

if TYPE_CHECKING:
    from torchmetrics import Metric

    from ips.statistics import Floats, Interval


@dataclass(frozen=True)
class Ordinal(Classification):
    """One of C grades per image; the classes are in the order of the grades.

    Args: see `Classification`; the metric is quadratic weighted kappa by default.
    """

    @property
    def has_one_class(self) -> bool:
        return True

    @property
    def metric_name(self) -> Score:
        return self.score or "kappa"

    @property
    def outputs(self) -> int:
        """One for each grade but the highest."""
        return self.classes - 1

    def _loss(
        self, logits: Tensor, labels: Tensor, *, weights: Tensor | None, smoothing: float
    ) -> Tensor:
        log = _log_probabilities(logits)
        return super()._loss(log, labels, weights=weights, smoothing=smoothing)

    def activation(self, logits: Tensor) -> Tensor:
        """Logits to the probabilities of a higher grade, given that it is at least k."""
        return torch.sigmoid(logits)

    def divergence(self, logits: Tensor, usual: Tensor) -> Tensor:
        """The Kullback-Leibler divergence of the probabilities of the grades."""
        return super().divergence(_log_probabilities(logits), _log_probabilities(usual))

    def class_probabilities(self, probabilities: Tensor) -> Tensor:
        """Probabilities of a higher grade ``(..., C - 1)`` to those of the grades ``(..., C)``.

        >>> Ordinal("ordinal", 3).class_probabilities(torch.tensor([0.5, 0.5])).tolist()
        [0.5, 0.25, 0.25]
        """
        reached = F.pad(probabilities.cumprod(dim=-1), (1, 0), value=1.0)  # (..., C) at least k
        return reached * F.pad(1 - probabilities, (0, 1), value=1.0)

    def decide(self, class_probabilities: Tensor) -> Tensor:
        """The median grade, as bools ``(..., C)``: at least half the probability is up to it."""
        below = (class_probabilities.cumsum(dim=-1) < 0.5 - 1e-6).sum(dim=-1)
        return F.one_hot(below.clamp(max=self.classes - 1), self.classes).bool()

    def errors(self, columns: Tensor, targets: Tensor) -> Tensor:
        """Expected distance from the true grade."""
        grades = torch.arange(self.classes, dtype=columns.dtype)
        truth = targets.int().argmax(dim=1, keepdim=True)
        return ((grades - truth).abs() * columns).sum(dim=1)

    def metric(self) -> Metric:
        from ips.metrics import Collected
        from ips.statistics import quadratic_kappa

        if self.metric_name == "auc":
            return super().metric()
        return Collected(quadratic_kappa if self.metric_name == "kappa" else _accuracy)

    def _update(self, metric: Metric, logits: Tensor, labels: Tensor) -> None:
        columns = self.class_activation(logits)
        if self.metric_name == "auc":
            metric.update(columns, self.one_hot(labels))
        else:
            grades = self.decide(columns).int().argmax(dim=-1)
            metric.update(grades.double(), labels.double())


def _accuracy(predicted: Floats, labels: Floats) -> Interval:
    from ips.statistics import wilson

    return wilson(int((predicted == labels).sum()), len(labels))


def _log_probabilities(logits: Tensor) -> Tensor:
    """Logarithms of the probabilities of the grades ``(..., C)`` from logits ``(..., C - 1)``."""
    reached = F.pad(F.logsigmoid(logits).cumsum(dim=-1), (1, 0))
    return reached + F.pad(F.logsigmoid(-logits), (0, 1))
