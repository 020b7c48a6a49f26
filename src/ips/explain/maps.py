"""The attention of every patch of an image, and its raster over the image.

Letters: N patches of an image, K of them selected, T tasks, S score channels, n values above 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ips.errors import PatchError
from ips.models import Prediction
from ips.patches import Part, PatchSource

Floats = npt.NDArray[np.float64]
Attention = dict[str, Floats]

_MAX_CELLS = 2**23  # 64 MB
_SMALLEST_CELL = 1 / 8  # as a share of a patch
_TOLERANCE = 1e-3  # relative difference of attention below the rounding errors of the network


def attention_from_prediction(prediction: Prediction) -> Attention:
    """Attention ``(N,)`` per task of a method that scores only the K selected patches."""
    attention: Attention = {}
    for task, values in prediction.task_attention.items():
        attention[task] = np.zeros(prediction.patches)
        attention[task][prediction.indices.numpy()] = values.detach().cpu().double().numpy()
    return attention


def relative_attention(attention: Floats, highest: float | None = None) -> Floats:
    """Attention ``(K,)`` from 0 to 1: the square root of its share of the highest attention."""
    highest = float(attention.max(initial=0.0)) if highest is None else highest
    return np.sqrt(attention / max(highest, 1e-12))


@dataclass(frozen=True)
class AttentionMap:
    """Attention as a raster; the side of a cell is the distance between neighbouring patches.

    Attributes:
        values: ``(rows, columns)``; NaN where there is no patch.
        cell: side of a cell in full-resolution pixels.
        offset: x, y of the top-left corner in full-resolution pixels.
    """

    values: Floats
    cell: float
    offset: tuple[int, int]


def attention_map(
    source: PatchSource,
    attention: Floats,
    *,
    seen: npt.NDArray[np.bool_] | None = None,
    max_cells: int = _MAX_CELLS,
) -> AttentionMap:
    """The mean attention of the patches over each cell, weighted by the area of their overlap.

    A map of more than ``max_cells`` cells gets larger cells. ``attention`` is ``(N,)``. The source
    is one image at one magnification; `PatchSource.by_part` divides another one.

    Only patches that were ``seen`` ``(N,)`` count, by default all.
    """
    if not len(source):
        raise PatchError(f"{source.name}: has no patches, so there is no attention map")
    part = only_part(source)
    coords, side = source.coords, part.patch_side
    low = coords.min(axis=0)  # (2,)
    span = coords.max(axis=0) + side - low
    cell = max(min(part.step, side), side * _SMALLEST_CELL)
    while _count(span, cell).prod() > max_cells:
        cell *= 2
    columns, rows = _count(span, cell).tolist()

    start = (coords - low) / cell  # (N, 2) in cells
    stop = start + side / cell
    first = np.floor(start + 1e-9).astype(np.int64)
    reach = range(int(_count(np.array([side]), cell)[0]) + 1)  # cells that a patch can touch
    total, area = np.zeros(rows * columns), np.zeros(rows * columns)
    for down in reach:
        for right in reach:
            at = first + np.array([right, down])  # (N, 2)
            shared = np.minimum(stop, at + 1) - np.maximum(start, at)
            here = (shared > 1e-9).all(axis=1) & (at < (columns, rows)).all(axis=1)
            if seen is not None:
                here &= seen
            place = at[here, 1] * columns + at[here, 0]
            overlap = shared[here].prod(axis=1)
            np.add.at(total, place, overlap * attention[here])
            np.add.at(area, place, overlap)
    values = np.full(rows * columns, np.nan)
    np.divide(total, area, out=values, where=area > 0)
    x, y = low.tolist()
    return AttentionMap(values.reshape(rows, columns), cell, (x, y))


def percentiles(values: Floats, *, among: Floats | None = None) -> npt.NDArray[np.float32]:
    """Ranks of the values from 0 to 1, so that a softmax over many patches becomes visible.

    The rank is the share of the values above 0 that are lower: 0 for the lowest value and 1 for
    the highest. Values that are 0 (a skipped patch) or NaN (no patch) get 0.

    Args:
        values: values to rank.
        among: values of all maps of a bag, ``values`` among them; by default ``values`` alone.
    """
    scaled = np.zeros(values.shape, dtype=np.float32)
    positive = values > 0
    rounded = np.rint(np.log(values[positive]) / _TOLERANCE)  # (n,)
    every = rounded if among is None else np.rint(np.log(among[among > 0]) / _TOLERANCE)
    ranked = np.sort(every)
    lower = np.searchsorted(ranked, rounded, side="left")
    scaled[positive] = lower / (len(ranked) - 1) if len(ranked) > 1 else 1.0
    return scaled


def values_at(values: Floats, shares: Sequence[float]) -> list[float]:
    """The values whose `percentiles` are these shares, from 0 to 1."""
    ranked = np.sort(values[values > 0])
    if not len(ranked):
        return [0.0] * len(shares)
    return [float(ranked[round(share * (len(ranked) - 1))]) for share in shares]


def image_area(source: PatchSource, *, crop: bool = True) -> tuple[int, int, int, int]:
    """Left, top, width and height of the image in full-resolution pixels.

    With ``crop``, of the scanned area instead of the whole image, where the file has one.
    """
    part = only_part(source)
    return part.area if crop or part.size is None else (0, 0, *part.size)


def only_part(source: PatchSource) -> Part:
    """The part of a source that has one; otherwise raise."""
    parts = source.parts
    if len(parts) > 1:
        raise PatchError(
            f"{source.name}: consists of {len(parts)} images or magnifications, which have a map "
            "each: take those of by_part()"
        )
    return parts[0]


def all_values(maps: Sequence[AttentionMap]) -> Floats:
    """The values of all maps of a bag, to take percentiles among."""
    return np.concatenate([each.values.ravel() for each in maps])


def _count(span: npt.NDArray[np.float64], cell: float) -> npt.NDArray[np.int64]:
    return np.maximum(np.ceil(span / cell - 1e-6), 1).astype(np.int64)
