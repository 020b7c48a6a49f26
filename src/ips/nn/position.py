"""The optional 1-D sinusoidal position encoding, for any number of patches."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def sinusoidal_position(index: Tensor, dim: int) -> Tensor:
    """Encode patch numbers ``(...)`` as ``(..., dim)``: sines and cosines of ever longer waves.

    Computed from the numbers themselves rather than looked up, so that no image has too many
    patches.

    >>> sinusoidal_position(torch.tensor([0, 7]), 4).shape
    torch.Size([2, 4])
    """
    # In double precision: in single, patches a million numbers on would blur into each other.
    pair = torch.arange(0, dim, 2, dtype=torch.float64, device=index.device)
    rates = torch.exp(pair * (-math.log(10_000.0) / dim))  # (dim / 2,)
    angles = index.unsqueeze(-1) * rates  # (..., dim / 2)
    waves = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)  # (..., dim)
    return waves[..., :dim].to(torch.float32)
