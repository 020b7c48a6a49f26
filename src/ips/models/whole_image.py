"""Assemble the whole image from its patches, for methods that process it at once.

Letters: N patches, C channels, H and W height and width of the image.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ips.errors import PatchError
from ips.nn.embedding import micro_batch
from ips.patches import PatchSource

_MAX_PIXELS = 2**30


def whole_image(source: PatchSource, *, device: torch.device) -> Tensor:
    """Return the area that the patches cover, ``(C, H, W)`` uint8, at the resolution of a patch."""
    if len(source.shape) != 3 or source.extent is None:
        raise PatchError(
            f"{source.name}: contains features, not pixels, but method=cnn and method=dps need the "
            "whole image: use another method"
        )
    C, h, w = source.shape
    corners = np.rint((source.coords - source.coords.min(axis=0)) * (w / source.extent))
    corners = corners.astype(np.int64)  # (N, 2) in pixels of a patch
    W, H = (corners.max(axis=0) + np.array([w, h])).tolist()
    if W * H > _MAX_PIXELS:
        raise PatchError(
            f"{source.name}: {W:,} x {H:,} px are too many for a network over the whole image: "
            "choose a coarser patches.level, or use method=ips"
        )
    image = np.zeros((C, H, W), dtype=np.uint8)  # assembled in host memory and copied once
    for part in torch.arange(len(source)).split(16 * micro_batch(source.shape, device)):
        patches = source.read(part).cpu().numpy()
        for (x, y), patch in zip(corners[part.numpy()].tolist(), patches, strict=True):
            image[:, y : y + h, x : x + w] = patch
    return torch.from_numpy(image).to(device)


def grid_shape(source: PatchSource) -> tuple[int, int]:
    """Return rows and columns of the patches; anything but a full grid is an error."""
    columns, rows = (len(np.unique(source.coords[:, axis])) for axis in (0, 1))
    if rows * columns != len(source):
        raise PatchError(
            f"{source.name}: its {len(source)} patches are not a full grid, which method=dps and "
            "method=cnn need: use another method"
        )
    return rows, columns
