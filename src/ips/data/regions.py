"""Tumour regions of CAMELYON16: which points and patches lie inside the annotated polygons.

Coordinates are full-resolution pixels. Letters: n points or corners, N patches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ips.annotations import read_outlines
from ips.errors import DataError, shown

Points = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

#: ASAP groups of CAMELYON16 that mark tumour, and those that exclude an area from it.
TUMOUR_GROUPS = ("_0", "_1", "Tumor")
EXCLUSION_GROUPS = ("_2", "Exclusion", "None")

# Points tested at a time: bounds memory.
_POINTS = 1 << 18


@dataclass(frozen=True)
class Region:
    """A polygon of ``(n, 2)`` corners that marks tumour, or excludes an area from it."""

    polygon: Points
    group: str
    tumour: bool


def read_tumour_regions(path: str | Path) -> list[Region]:
    """Read the polygons of an ASAP file that uses the groups of CAMELYON16, in file order."""
    regions = []
    for outline in read_outlines(path):
        group = outline.group or "None"
        if group not in (*TUMOUR_GROUPS, *EXCLUSION_GROUPS):
            raise DataError(
                f"{path}: annotation {shown(outline.name)} is in the group {shown(group)}, "
                f"expected {', '.join(TUMOUR_GROUPS)} for tumour or "
                f"{', '.join(EXCLUSION_GROUPS)} for exclusions: rename the group in ASAP"
            )
        if len(outline.lines[0]) > 2:  # fewer corners have no area
            regions.append(Region(np.array(outline.lines[0]), group, group in TUMOUR_GROUPS))
    return regions


def inside(regions: Sequence[Region], points: npt.ArrayLike) -> Mask:
    """Which points ``(n, 2)`` lie inside a tumour polygon and outside every exclusion polygon."""
    points = np.asarray(points, dtype=np.float64).reshape(-1, 2)
    tumour, excluded = np.zeros(len(points), bool), np.zeros(len(points), bool)
    for region in regions:
        target = tumour if region.tumour else excluded
        target |= _in_polygon(region.polygon, points)
    return tumour & ~excluded


def coverage(
    regions: Sequence[Region], coords: npt.ArrayLike, *, extent: float, samples: int = 8
) -> npt.NDArray[np.float64]:
    """Estimate the share of each patch that is tumour, ``(N,)``.

    Args:
        regions: polygons of a slide.
        coords: ``(N, 2)`` top-left corners of patches.
        extent: side of a patch.
        samples: number of sample points along each side of a patch.
    """
    corners = np.asarray(coords, dtype=np.float64).reshape(-1, 2)
    steps = (np.arange(samples) + 0.5) * (extent / samples)
    offsets = np.stack(np.meshgrid(steps, steps), axis=-1).reshape(-1, 2)  # (samples^2, 2)
    share = np.zeros(len(corners))
    touched = np.zeros(len(corners), bool)  # patches on the bounding box of a tumour: only a few
    for region in regions:
        if region.tumour:
            low, high = region.polygon.min(axis=0), region.polygon.max(axis=0)
            touched |= ((corners + extent > low) & (corners < high)).all(axis=1)
    near = np.flatnonzero(touched)
    for part in np.array_split(near, max(1, -(-len(near) * len(offsets) // _POINTS))):
        points = corners[part, None] + offsets  # (k, samples^2, 2)
        share[part] = inside(regions, points).reshape(len(part), len(offsets)).mean(axis=1)
    return share


def _in_polygon(polygon: Points, points: Points) -> Mask:
    """Which points have an odd number of polygon edges to their left.

    Points of the same height share the search for edges. On the grid of a slide this is far
    faster than ``skimage.measure.points_in_poly``, which also counts a point on the border of two
    polygons twice.
    """
    found = np.zeros(len(points), bool)
    (x, y), (x_next, y_next) = polygon.T, np.roll(polygon, -1, axis=0).T
    low, high = polygon.min(axis=0), polygon.max(axis=0)
    near = np.flatnonzero(((points >= low) & (points <= high)).all(axis=1))
    heights, height_of = np.unique(points[near, 1], return_inverse=True)
    order = np.argsort(height_of, kind="stable")
    rows = np.split(near[order], np.flatnonzero(np.diff(height_of[order])) + 1)
    for height, row in zip(heights, rows, strict=False):  # without points there is one empty row
        crossing = (y <= height) != (y_next <= height)
        rise = (height - y[crossing]) / (y_next[crossing] - y[crossing])
        edges = np.sort(x[crossing] + rise * (x_next[crossing] - x[crossing]))
        found[row] = np.searchsorted(edges, points[row, 0]) % 2 == 1
    return found
