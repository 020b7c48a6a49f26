"""Positions of boxes and labels on a thumbnail.

Letters: K patches of an image, k boxes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ips.patches import Coords, Thumbnail

Floats = npt.NDArray[np.float64]

THUMBNAIL_SIDE = 800
"""Longer side in pixels of a thumbnail that fills a figure."""


def boxes(view: Thumbnail, coords: Coords, *, extent: float, smallest: float = 0.0) -> Floats:
    """Left, top, width and height ``(K, 4)`` of patches in pixels of the thumbnail.

    Args:
        view: the thumbnail.
        coords: ``(K, 2)`` corners in full-resolution pixels.
        extent: side of a patch in full-resolution pixels.
        smallest: a box below this is widened about its centre, or nobody would see a patch of a
            slide of 100,000 px.
    """
    side = max(extent * view.scale, smallest)
    centre = (coords + extent / 2 - np.array(view.offset)) * view.scale  # (K, 2)
    return np.concatenate([centre - side / 2, np.full_like(centre, side)], axis=1)  # (K, 4)


def label_spots(marks: Floats, *, size: tuple[float, float], area: tuple[int, int]) -> Floats:
    """Centres ``(k, 2)`` for numbers beside boxes ``(k, 4)``, clear of each other if they can be.

    Args:
        marks: left, top, width and height of each box.
        size: width and height of a number.
        area: width and height of the picture, which a number should not leave.
    """
    half = np.array(size) / 2
    spots = np.empty((len(marks), 2))
    for i, (left, top, w, h) in enumerate(marks.tolist()):
        across = left + half[0], left + w / 2, left + w - half[0]
        upright = top + half[1], top + h / 2, top + h - half[1]
        outside = [(x, y) for y in (top - half[1], top + h + half[1]) for x in across]
        outside += [(x, y) for x in (left - half[0], left + w + half[0]) for y in upright]
        tries = np.array(outside)  # (12, 2)
        taken = _shared(tries, half, spots[:i] - half, spots[:i] + half)
        covers = _shared(tries, half, marks[:, :2], marks[:, :2] + marks[:, 2:])
        inside = _shared(tries, half, np.zeros((1, 2)), np.array([area], dtype=float))
        spots[i] = tries[np.argmin(20 * taken + covers - 10 * inside)]
    return spots


def _shared(centres: Floats, half: Floats, low: Floats, high: Floats) -> Floats:
    """Area that rectangles about ``centres`` share with those from ``low`` to ``high``, in all."""
    start = np.maximum(centres[:, None] - half, low[None])  # (tries, boxes, 2)
    stop = np.minimum(centres[:, None] + half, high[None])
    area: Floats = np.maximum(stop - start, 0).prod(axis=2).sum(axis=1)  # (tries,)
    return area
