"""The whole image put together from its patches, for methods that look at it as one.

Letters: N patches, C channels, H and W height and width of the image.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ips.errors import PatchError
from ips.nn.embedding import micro_batch
from ips.patches import PatchSource

_MOST = 2**30  # pixels


def whole_image(source: PatchSource, *, device: torch.device) -> Tensor:
    """``(C, H, W)`` uint8: what the patches cover, at the resolution that they are read at."""
    if len(source.shape) != 3 or source.extent is None:
        raise PatchError(
            f"{source.name}: holds features, not pixels, so there is no image to look at as a "
            "whole: take another method than cnn or dps"
        )
    C, h, w = source.shape
    corners = np.rint((source.coords - source.coords.min(axis=0)) * (w / source.extent))
    corners = corners.astype(np.int64)  # (N, 2) in the pixels of a patch
    W, H = (corners.max(axis=0) + np.array([w, h])).tolist()
    if W * H > _MOST:
        raise PatchError(
            f"{source.name}: {W:,} x {H:,} px are too many to look at as one image: read it at a "
            "coarser patches.level, or take method=ips"
        )
    image = np.zeros((C, H, W), dtype=np.uint8)  # put together in host memory, and sent once
    for part in torch.arange(len(source)).split(16 * micro_batch(source.shape, device)):
        patches = source.read(part).cpu().numpy()
        for (x, y), patch in zip(corners[part.numpy()].tolist(), patches, strict=True):
            image[:, y : y + h, x : x + w] = patch
    return torch.from_numpy(image).to(device)


def grid_shape(source: PatchSource) -> tuple[int, int]:
    """Rows and columns of an image's patches; what is not a full grid is an error."""
    columns, rows = (len(np.unique(source.coords[:, axis])) for axis in (0, 1))
    if rows * columns != len(source):
        raise PatchError(
            f"{source.name}: its {len(source)} patches are no full grid, which method=dps and "
            "method=cnn need: take another method"
        )
    return rows, columns
