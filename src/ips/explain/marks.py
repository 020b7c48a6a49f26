"""Positions of boxes and numbers on a thumbnail.

Letters: K patches of an image, k boxes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ips.patches import Coords, Thumbnail

Floats = npt.NDArray[np.float64]

#: Longer side in pixels of a thumbnail that fills a figure.
THUMBNAIL_SIDE = 800


def boxes(view: Thumbnail, coords: Coords, *, extent: float, smallest: float = 0.0) -> Floats:
    """Left, top, width and height ``(K, 4)`` of patches in pixels of the thumbnail.

    Args:
        view: the thumbnail.
        coords: ``(K, 2)`` corners in full-resolution pixels.
        extent: side of a patch in full-resolution pixels.
        smallest: smallest side of a box; a smaller one is enlarged around its centre.
    """
    side = max(extent * view.scale, smallest)
    centre = (coords + extent / 2 - np.array(view.offset)) * view.scale  # (K, 2)
    return np.concatenate([centre - side / 2, np.full_like(centre, side)], axis=1)  # (K, 4)


def label_spots(marks: Floats, *, size: tuple[float, float], area: tuple[int, int]) -> Floats:
    """Centres ``(k, 2)`` for numbers beside boxes ``(k, 4)``, which avoid each other if possible.

    Args:
        marks: left, top, width and height of each box.
        size: width and height of a number.
        area: width and height of the picture, inside of which a number should stay.
    """
    half = np.array(size) / 2
    spots = np.empty((len(marks), 2))
    for i, (left, top, w, h) in enumerate(marks.tolist()):
        xs = left + half[0], left + w / 2, left + w - half[0]
        ys = top + half[1], top + h / 2, top + h - half[1]
        around = [(x, y) for y in (top - half[1], top + h + half[1]) for x in xs]
        around += [(x, y) for x in (left - half[0], left + w + half[0]) for y in ys]
        tries = np.array(around)  # (12, 2)
        taken = _overlap(tries, half, spots[:i] - half, spots[:i] + half)
        covers = _overlap(tries, half, marks[:, :2], marks[:, :2] + marks[:, 2:])
        inside = _overlap(tries, half, np.zeros((1, 2)), np.array([area], dtype=float))
        spots[i] = tries[np.argmin(20 * taken + covers - 10 * inside)]
    return spots


def _overlap(centres: Floats, half: Floats, low: Floats, high: Floats) -> Floats:
    """Total area that the rectangle around each centre shares with those from low to high."""
    start = np.maximum(centres[:, None] - half, low[None])  # (tries, boxes, 2)
    stop = np.minimum(centres[:, None] + half, high[None])
    area: Floats = np.maximum(stop - start, 0).prod(axis=2).sum(axis=1)  # (tries,)
    return area
