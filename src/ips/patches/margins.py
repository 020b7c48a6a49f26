"""How much of an overlapping patch its neighbours show, too.

Letters: N patches of a source.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ips.patches.source import Coords, PatchSource


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
    found = np.zeros(len(coords), dtype=np.bool_)
    if step != int(step) or not len(coords):  # a broken step rounds positions
        return found
    from_corner = coords - coords.min(axis=0)
    on_grid = (from_corner % int(step) == 0).all(axis=1)
    column, row = (from_corner[on_grid] // int(step)).T
    rows, columns = row.max(initial=0) + 1, column.max(initial=0) + 1
    there = np.zeros((rows + 2, columns + 2), dtype=np.bool_)  # with an empty border
    there[row + 1, column + 1] = True
    around = [there[y : y + rows, x : x + columns] for x in range(3) for y in range(3)]
    found[on_grid] = np.logical_and.reduce(around)[row, column]
    return found
