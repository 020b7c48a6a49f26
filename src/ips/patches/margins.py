"""How much of an overlapping patch its neighbours show, too.

Letters: N patches of a source.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ips.patches.source import Coords, PatchSource

_AROUND = [(x, y) for x in (-1, 0, 1) for y in (-1, 0, 1) if (x, y) != (0, 0)]


def margins(source: PatchSource) -> Tensor:
    """Width in pixels of the margin of each patch that is nearer to the centre of a neighbour.

    The rest of the patch, its cell, is as wide as the step of the grid, so that the cells of all
    patches cover the image once. A patch without all eight neighbours, as at the border, has no
    margin.

    Returns:
        ``(N,)`` integers, 0 where patches do not overlap.
    """
    found = np.zeros(len(source), dtype=np.int64)
    for part in source.parts:
        if len(source.shape) != 3 or part.extent is None or part.step >= part.extent:
            continue
        margin = int((part.extent - part.step) / 2 * source.shape[-1] / part.extent)
        coords = source.coords[part.patches]
        found[part.patches] = np.where(_has_neighbours(coords, part.step), margin, 0)
    return torch.from_numpy(found)


def _has_neighbours(coords: Coords, step: float) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether there are patches one step away on all sides of each ``(N, 2)`` patch."""
    if step != int(step):  # their positions are rounded
        return np.zeros(len(coords), dtype=np.bool_)
    column, row = ((coords - coords.min(axis=0)) + int(step)).T
    width = int(column.max()) + 2 * int(step)
    there = row * width + column  # a number for each position
    all_there = np.ones(len(coords), dtype=np.bool_)
    for x, y in _AROUND:
        all_there &= np.isin(there + (y * width + x) * int(step), there)
    return all_there
