"""BYOL: a network learns to predict the output of its moving average for another view.

Grill et al. 2020, *Bootstrap your own latent*.

Letters: b patches, C channels, D embedding size, P size of a projection.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from copy import deepcopy
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class BYOLOutput:
    """The scalar loss of two views of the same patches, and the spread of their projections.

    ``spread`` is the standard deviation of the target's projections over the patches, scaled from 0
    (collapsed to a single point) to about 1.
    """

    loss: Tensor
    spread: Tensor


class BYOL(nn.Module):
    """The online network with its predictor, and the target network, its moving average.

    Args:
        encoder: network from ``(b, C, h, w)`` to ``(b, D)``.
        dim: D.
        hidden: hidden size of the projector and the predictor.
        projection: P.
    """

    def __init__(
        self, encoder: nn.Module, dim: int, *, hidden: int = 4096, projection: int = 256
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = _mlp(dim, hidden, projection)
        self.predictor = _mlp(projection, hidden, projection)
        self.target_encoder = deepcopy(self.encoder).requires_grad_(False)
        self.target_projector = deepcopy(self.projector).requires_grad_(False)

    def forward(self, first: Tensor, second: Tensor) -> BYOLOutput:
        """Predict the target's projection of each view ``(b, C, h, w)`` from the other view."""
        p, q = (self.predictor(self.projector(self.encoder(v))) for v in (first, second))  # (b, P)
        with torch.no_grad():
            s, t = (self.target_projector(self.target_encoder(v)) for v in (first, second))
        loss = distance(p, t) + distance(q, s)  # (b,)
        return BYOLOutput(loss.mean(), _spread(t))

    @torch.no_grad()
    def update_target(self, tau: float) -> None:
        """Update the target: ``tau`` times itself plus ``1 - tau`` times the online network."""
        pairs = (self.target_encoder, self.encoder), (self.target_projector, self.projector)
        for target, online in pairs:
            for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
                slow.lerp_(fast, 1 - tau)


def distance(prediction: Tensor, target: Tensor) -> Tensor:
    """Squared distance ``(b,)`` of normalised rows of ``(b, P)``: 2 - 2 cos."""
    # float32, since half precision rounds a cosine near 1 to 1
    return 2 - 2 * F.cosine_similarity(prediction.float(), target.float(), dim=-1)


def moving_average(step: int, *, total: int, start: float = 0.996) -> float:
    """tau at ``step`` of ``total``: cosine schedule from ``start`` to 1.

    >>> [round(moving_average(step, total=100), 4) for step in (0, 50, 100)]
    [0.996, 0.998, 1.0]
    """
    return 1 - (1 - start) * (math.cos(math.pi * step / total) + 1) / 2


def learning_rate_factor(step: int, *, warmup: int, total: int) -> float:
    """Factor of the peak learning rate: linear warm-up over ``warmup`` steps, then cosine to 0.

    >>> [round(learning_rate_factor(step, warmup=2, total=10), 3) for step in (0, 1, 2, 6, 10)]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    if step < warmup:
        return (step + 1) / warmup
    return (1 + math.cos(math.pi * (step - warmup) / max(total - warmup, 1))) / 2


def _mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        OrderedDict(
            fc1=nn.Linear(inputs, hidden),
            norm=nn.BatchNorm1d(hidden),
            relu=nn.ReLU(inplace=True),
            fc2=nn.Linear(hidden, outputs),
        )
    )


def _spread(projections: Tensor) -> Tensor:
    units = F.normalize(projections.detach().float(), dim=-1)  # (b, P)
    return units.std(dim=0).mean() * math.sqrt(units.shape[1])
