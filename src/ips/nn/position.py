"""1-D sinusoidal position encoding, for any number of patches."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def sinusoidal_position(index: Tensor, dim: int) -> Tensor:
    """Encode patch indices ``(...)`` as ``(..., dim)``: sines and cosines of growing wavelength.

    They are computed instead of looked up in a table, so the number of patches is not limited.

    >>> sinusoidal_position(torch.tensor([0, 7]), 4).shape
    torch.Size([2, 4])
    """
    # In double precision, because single precision does not separate indices above a million.
    pair = torch.arange(0, dim, 2, dtype=torch.float64, device=index.device)
    rates = torch.exp(pair * (-math.log(10_000.0) / dim))  # (dim / 2,)
    angles = index.unsqueeze(-1) * rates  # (..., dim / 2)
    waves = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)  # (..., dim)
    return waves[..., :dim].to(torch.float32)
