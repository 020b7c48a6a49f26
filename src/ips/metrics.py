"""Metrics that need all images: the area under the ROC curve, and scores of numbers.

Letters: B images, C classes or labels.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from ips.statistics import Floats, Interval, auc


class AUC(Metric):  # type: ignore[misc]
    """Area under the ROC curve, the mean over classes; nan where it is undefined.

    A class without positives, or without negatives, has no ROC curve and is left out. (AUROC of
    torchmetrics counts it as 0.) If no class has one, the result is nan.
    """

    probabilities: list[Tensor]
    labels: list[Tensor]

    def __init__(self) -> None:
        super().__init__(sync_on_compute=False)  # every process adds the images of all
        self.add_state("probabilities", default=[], dist_reduce_fx="cat")
        self.add_state("labels", default=[], dist_reduce_fx="cat")

    def update(self, probabilities: Tensor, labels: Tensor) -> None:
        """Add probabilities ``(B, C)`` and true classes as bools ``(B, C)``."""
        self.probabilities.append(probabilities)
        self.labels.append(labels)

    def compute(self) -> Tensor:
        if not self.labels:
            return torch.tensor(torch.nan)
        probabilities, labels = dim_zero_cat(self.probabilities), dim_zero_cat(self.labels)
        area = auc(probabilities.double().cpu().numpy(), labels.cpu().numpy())
        return torch.tensor(area.value)


class Collected(Metric):  # type: ignore[misc]
    """A score of all images together, such as R²; nan where it is undefined.

    Args:
        score: function of predictions ``(n,)`` and labels ``(n, ...)``.
    """

    predictions: list[Tensor]
    labels: list[Tensor]

    def __init__(self, score: Callable[[Floats, Floats], Interval]) -> None:
        super().__init__(sync_on_compute=False)  # every process adds the images of all
        self.score = score
        self.add_state("predictions", default=[], dist_reduce_fx="cat")
        self.add_state("labels", default=[], dist_reduce_fx="cat")

    def update(self, predictions: Tensor, labels: Tensor) -> None:
        """Add predictions ``(B,)`` and labels ``(B, ...)``."""
        self.predictions.append(predictions)
        self.labels.append(labels)

    def compute(self) -> Tensor:
        if not self.labels:
            return torch.tensor(torch.nan)
        found = (dim_zero_cat(part).cpu().numpy() for part in (self.predictions, self.labels))
        return torch.tensor(self.score(*found).value)
