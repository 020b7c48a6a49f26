"""The area under the ROC curve, which does not exist without both classes.

Letters: B images, C classes or labels.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from ips.statistics import auc


class AUC(Metric):  # type: ignore[misc]
    """Area under the ROC curve, the mean over classes; nan where it is undefined.

    A class without positives, or without negatives, has no ROC curve and is left out. (AUROC of
    torchmetrics counts it as 0.) If no class has one, the result is nan.
    """

    probabilities: list[Tensor]
    labels: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
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
