"""How much every patch of an image was attended to, and the map that this makes.

Letters: N patches of an image, K of them kept, C classes, T tasks, S score channels,
n values above 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ips.errors import PatchError
from ips.models import Prediction
from ips.patches import PatchSource

Floats = npt.NDArray[np.float64]
Ranks = npt.NDArray[np.float32]
Attention = dict[str, Floats]

# A map never has more cells: 64 MB.
_CELLS = 2**23
# Nor are its cells smaller than this part of a patch.
_FINEST = 1 / 8
# Attention that differs by less is alike: it is the rounding of the network.
_ALIKE = 1e-3


def attention_from_logits(logits: Tensor, tasks: Sequence[str]) -> Attention:
    """Attention ``(N,)`` of every patch per task: softmax over all N, mean over a task's heads.

    Args:
        logits: ``(N, S)`` as selection found them, -inf for a patch that was passed over, which
            gets 0. Channels go task by task; a single channel counts for every task.
        tasks: T names.
    """
    N, S = logits.shape
    heads = max(1, S // len(tasks))
    attention: Attention = {}
    for t, task in enumerate(tasks):
        first = t * heads if S > 1 else 0
        total = np.zeros(N)
        for channel in range(first, first + heads):  # one at a time: N may be millions
            total += logits[:, channel].double().softmax(dim=0).cpu().numpy()
        attention[task] = total / heads
    return attention


def attention_from_prediction(prediction: Prediction) -> Attention:
    """The same from the attention to the K patches kept, for methods that score no others."""
    attention: Attention = {}
    for task, values in prediction.task_attention.items():
        attention[task] = np.zeros(prediction.patches)
        attention[task][prediction.indices.numpy()] = values.detach().double().cpu().numpy()
    return attention


def mean_attention(attention: Attention) -> Floats:
    """``(N,)``, the mean over tasks."""
    mean: Floats = np.mean(list(attention.values()), axis=0)
    return mean


def patch_scores(prediction: Prediction) -> Floats | None:
    """``(K, C)`` class scores of the patches kept; None without a read-out head."""
    if prediction.patch_probabilities is None:
        return None
    p: Floats = prediction.patch_probabilities.detach().double().cpu().numpy()
    return p


@dataclass(frozen=True)
class AttentionMap:
    """Attention as a raster whose cells are as large as the step from patch to patch.

    Attributes:
        values: ``(rows, columns)``; NaN where there is no patch.
        cell: side of a cell in full-resolution pixels.
        offset: x, y of the top-left corner in full-resolution pixels.
    """

    values: Floats
    cell: float
    offset: tuple[int, int]


def attention_map(source: PatchSource, attention: Floats, *, most: int = _CELLS) -> AttentionMap:
    """The mean attention of the patches over each cell, each by the area that it shares with it.

    Args:
        source: the patches.
        attention: ``(N,)`` of each of them.
        most: cells at the most; they are made larger where there would be more.
    """
    if not len(source):
        raise PatchError(f"{source.name}: there is no patch in it to make a map of")
    part = source.parts[0]
    coords, side = source.coords, part.patch_side
    low = coords.min(axis=0)  # (2,)
    span = coords.max(axis=0) + side - low
    cell = max(min(part.step, side), side * _FINEST)
    while _count(span, cell).prod() > most:
        cell *= 2
    columns, rows = _count(span, cell).tolist()

    start = (coords - low) / cell  # (N, 2) in cells
    stop = start + side / cell
    first = np.floor(start + 1e-9).astype(np.int64)
    reach = range(int(_count(np.array([side]), cell)[0]) + 1)  # a patch touches no more along x
    total, area = np.zeros(rows * columns), np.zeros(rows * columns)
    for down in reach:
        for right in reach:
            at = first + np.array([right, down])  # (N, 2)
            shared = np.minimum(stop, at + 1) - np.maximum(start, at)
            here = (shared > 1e-9).all(axis=1) & (at < (columns, rows)).all(axis=1)
            place = at[here, 1] * columns + at[here, 0]
            overlap = shared[here].prod(axis=1)
            np.add.at(total, place, overlap * attention[here])
            np.add.at(area, place, overlap)
    values = np.full(rows * columns, np.nan)
    np.divide(total, area, out=values, where=area > 0)
    x, y = low.tolist()
    return AttentionMap(values.reshape(rows, columns), cell, (x, y))


def percentiles(values: Floats) -> Ranks:
    """Values from 0 to 1 by their rank, so that a softmax over many patches can be seen.

    The share of all values above 0 that are lower: 0 for the lowest and all that equal it, 1 for
    the highest. What is 0 or NaN, a patch passed over or none at all, stays 0.
    """
    scaled = np.zeros(values.shape, dtype=np.float32)
    shown = values > 0
    ranked = np.sort(_key(values[shown]))  # (n,)
    lower = np.searchsorted(ranked, _key(values[shown]), side="left")
    scaled[shown] = lower / (len(ranked) - 1) if len(ranked) > 1 else 1.0
    return scaled


def raw_at(values: Floats, shares: Sequence[float]) -> list[float]:
    """The values that `percentiles` puts at these shares, from 0 to 1."""
    ranked = np.sort(values[values > 0])
    if not len(ranked):
        return [0.0] * len(shares)
    return [float(ranked[round(share * (len(ranked) - 1))]) for share in shares]


def image_area(source: PatchSource, *, crop: bool = True) -> tuple[int, int, int, int]:
    """Left, top, width and height of the image in full-resolution pixels.

    Where the patches do not say how large their image is, it ends with the last of them.

    Args:
        source: the patches.
        crop: the part that was scanned, where the file says so, instead of all of it.
    """
    part = source.parts[0]
    return part.area if crop or part.size is None else (0, 0, *part.size)


def _count(span: npt.NDArray[np.float64], cell: float) -> npt.NDArray[np.int64]:
    return np.maximum(np.ceil(span / cell - 1e-6), 1).astype(np.int64)


def _key(values: Floats) -> Floats:
    return np.rint(np.log(values) / _ALIKE)
