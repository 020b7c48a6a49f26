"""A number per image, such as an age.

The network learns standardised labels: its logit is the distance from the mean of the training
labels, in their standard deviations. Predictions are in the units of the table.

Letters: B images.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ips.tasks.task import Kind, Score, Task

if TYPE_CHECKING:
    from torchmetrics import Metric

# Constant answers in standard deviations. The best one for a Huber loss is not always the mean.
_CONSTANTS = torch.linspace(-2, 2, 81)


@dataclass(frozen=True)
class Regression(Task):
    """A number per image.

    Args:
        mean: mean of the training labels.
        deviation: their standard deviation.
        squared: squared error instead of the Huber loss, which is linear beyond one deviation.
        score: metric to report; None for R².
    """

    kind: Kind = field(default="regression", init=False)
    has_probabilities: ClassVar[bool] = False
    mean: float = 0.0
    deviation: float = 1.0
    squared: bool = False
    score: Score | None = None

    @property
    def class_names(self) -> list[str]:
        return ["value"]

    @property
    def metric_name(self) -> Score:
        return self.score or "r2"

    @property
    def outputs(self) -> int:
        return 1

    @property
    def missing(self) -> Tensor:
        return torch.tensor(torch.nan)

    def _loss(
        self, logits: Tensor, labels: Tensor, *, weights: Tensor | None, smoothing: float
    ) -> Tensor:
        return self._errors(logits, self._standardised(labels).view_as(logits)).mean()

    def _errors(self, logits: Tensor, targets: Tensor) -> Tensor:
        if self.squared:
            return F.mse_loss(logits, targets.to(logits), reduction="none")
        return F.huber_loss(logits, targets.to(logits), reduction="none")

    def _standardised(self, labels: Tensor) -> Tensor:
        return (labels - self.mean) / self.deviation

    def answer_statistics(self, labels: Tensor) -> Tensor:
        """Number of labels, and the sums of their losses for some constant answers."""
        targets = self._standardised(labels[self.known(labels)]).cpu().double()  # (B,)
        constants = _CONSTANTS.double().unsqueeze(1).expand(-1, len(targets))
        sums = self._errors(constants, targets.expand_as(constants)).sum(dim=1)
        return torch.cat([torch.tensor([len(targets)]), sums])

    def constant_loss(
        self, statistics: Tensor, *, weights: Tensor | None = None, smoothing: float = 0.0
    ) -> Tensor:
        return statistics[1:].min() / statistics[0]

    def activation(self, logits: Tensor) -> Tensor:
        """Logits to values in the units of the table."""
        return logits * self.deviation + self.mean

    def divergence(self, logits: Tensor, usual: Tensor) -> Tensor:
        """Half the squared distance in standard deviations.

        That is the divergence of two normal distributions with a standard deviation of 1.
        """
        return (logits - usual).square().sum(dim=-1) / 2

    def targets(self, labels: Tensor) -> Tensor:
        """The labels of B images, ``(B, 1)``; nan for an image without one."""
        return labels.double().unsqueeze(-1)

    def answer(self, columns: Tensor) -> float:
        return float(columns[0])

    def truth(self, target: Tensor) -> float:
        return float(target[0])

    def read_truth(self, text: str) -> list[float]:
        return [float(text or "nan")]

    def errors(self, columns: Tensor, targets: Tensor) -> Tensor:
        """Distance from the truth, in standard deviations."""
        return ((columns - targets) / self.deviation).abs().squeeze(-1)

    def metric(self) -> Metric:
        from ips.metrics import Collected
        from ips.statistics import pearson, r_squared

        return Collected({"r2": r_squared, "pearson": pearson}[self.metric_name])

    def _update(self, metric: Metric, logits: Tensor, labels: Tensor) -> None:
        metric.update(self.activation(logits.double()).squeeze(-1), labels.double())

    def nothing_to_learn(self, labels: Tensor) -> str | None:
        same = bool((labels == labels[0]).all())
        return f"only the value {float(labels[0]):g}" if same else None
