"""Regions of an image that show an object: which points lie inside them, which patches are on them.

Coordinates are full-resolution pixels. Letters: n points or corners, N patches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ips.annotations import read_outlines
from ips.errors import DataError, shown

Points = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]
Size = tuple[int, int]

#: ASAP groups of CAMELYON16 that mark tumour, and those that exclude an area from it.
TUMOUR_GROUPS = ("_0", "_1", "Tumor")
EXCLUSION_GROUPS = ("_2", "Exclusion", "None")

# Points tested at a time: bounds memory.
_POINTS = 1 << 18
# Sample points along each side of a region, for its area and centre; odd, so one is in the middle.
_SAMPLES = 65


@dataclass(frozen=True, eq=False)
class Region:
    """A polygon of ``(n, 2)`` corners, without the polygons in ``holes``.

    ``image`` is the number of its image in a bag of several.
    """

    polygon: Points
    holes: tuple[Points, ...] = ()
    image: int = 0

    @classmethod
    def box(cls, left: float, top: float, right: float, bottom: float) -> Region:
        """A rectangle; ``right`` and ``bottom`` are outside of it."""
        corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
        return cls(np.array(corners, dtype=np.float64))

    @cached_property
    def bounds(self) -> tuple[Points, Points]:
        """Top-left and bottom-right corner ``(2,)`` of the bounding box."""
        return self.polygon.min(axis=0), self.polygon.max(axis=0)

    @cached_property
    def is_box(self) -> bool:
        """Whether the region is its bounding box."""
        low, high = self.bounds
        on_edges = ((self.polygon == low) | (self.polygon == high)).all()
        corners = {tuple(corner) for corner in self.polygon.tolist()}
        return bool(on_edges) and len(self.polygon) == len(corners) == 4 and not self.holes

    @cached_property
    def area(self) -> float:
        """Number of pixels; an estimate, unless it is a box."""
        low, high = self.bounds
        box = float((high - low).prod())
        return box if self.is_box else box * len(self._samples) / _SAMPLES**2

    @cached_property
    def centre(self) -> Points:
        """The point ``(2,)`` inside the region that is nearest to its centroid."""
        low, high = self.bounds
        if self.is_box or not len(self._samples):
            middle: Points = (low + high) / 2
            return middle
        distance = np.square(self._samples - self._samples.mean(axis=0)).sum(axis=1)
        nearest: Points = self._samples[distance.argmin()]
        return nearest

    @cached_property
    def _samples(self) -> Points:
        """Points inside the region ``(n, 2)``, from a grid over its bounding box."""
        low, high = self.bounds
        points = low + _grid(_SAMPLES) * (high - low)
        samples: Points = points[inside([self], points)]
        return samples


class Objects(Protocol):
    """Where things are on the images of a table."""

    @property
    def errors(self) -> Sequence[DataError]:
        """One error for every mistake that can be seen without the images."""

    @property
    def notes(self) -> Sequence[str]:
        """Sentences about what is ignored."""

    def regions(self, image: Path, task: str) -> list[Region] | None:
        """The objects of an image that matter for a task; None if they are unknown."""

    def problems(self, image: Path, size: Size | None) -> list[DataError]:
        """An error for each object that cannot be right, given width and height of the image."""


def read_tumour_regions(path: str | Path) -> list[Region]:
    """Read the tumours of an ASAP file that uses the groups of CAMELYON16, in file order.

    The areas that the file excludes from tumours are the holes of every tumour they may touch.
    """
    tumours: list[Region] = []
    exclusions: list[Region] = []
    for outline in read_outlines(path):
        group = outline.group or "None"
        if group not in (*TUMOUR_GROUPS, *EXCLUSION_GROUPS):
            raise DataError(
                f"{path}: annotation {shown(outline.name)} is in the group {shown(group)}, "
                f"expected {', '.join(TUMOUR_GROUPS)} for tumour or "
                f"{', '.join(EXCLUSION_GROUPS)} for exclusions: rename the group in ASAP"
            )
        if len(outline.lines[0]) > 2:  # fewer corners have no area
            target = tumours if group in TUMOUR_GROUPS else exclusions
            target.append(Region(np.array(outline.lines[0])))
    return [
        Region(tumour.polygon, tuple(hole.polygon for hole in exclusions if _touch(tumour, hole)))
        for tumour in tumours
    ]


def read_outlined_regions(path: str | Path, *, origin: tuple[int, int] = (0, 0)) -> list[Region]:
    """Read the polygons of a GeoJSON file, with their holes; for ``origin`` see `read_outlines`."""
    return [
        Region(np.array(outline.lines[0]), tuple(np.array(line) for line in outline.lines[1:]))
        for outline in read_outlines(path, origin=origin)
        if outline.kind == "polygon" and len(outline.lines[0]) > 2
    ]


def inside(regions: Sequence[Region], points: npt.ArrayLike) -> Mask:
    """Which points ``(n, 2)`` lie inside a region."""
    points = np.asarray(points, dtype=np.float64).reshape(-1, 2)
    found = np.zeros(len(points), bool)
    for region in regions:
        within = np.flatnonzero(_in_polygon(region.polygon, points))
        for hole in region.holes:
            within = within[~_in_polygon(hole, points[within])]
        found[within] = True
    return found


def patches_on(region: Region, coords: npt.ArrayLike, *, extent: float) -> Indices:
    """Indices of the patches that are on a region, in ascending order.

    These are the patches that contain its centre, cover at least half of it, or are covered by it
    at least by half.

    Args:
        coords: ``(N, 2)`` top-left corners of patches.
        extent: side of a patch.
    """
    corners = np.asarray(coords, dtype=np.float64).reshape(-1, 2)
    shared = _shared_area(region, corners, extent)
    half = (shared > 0) & (shared >= min(region.area, extent**2) / 2)
    centred = ((corners <= region.centre) & (region.centre < corners + extent)).all(axis=1)
    return np.flatnonzero(half | centred)


def _shared_area(region: Region, corners: Points, extent: float) -> npt.NDArray[np.float64]:
    """Area that each patch shares with a region, ``(N,)``; an estimate, unless it is a box."""
    low, high = region.bounds
    sides = np.minimum(corners + extent, high) - np.maximum(corners, low)  # (N, 2)
    shared: npt.NDArray[np.float64] = np.clip(sides, 0, None).prod(axis=1)
    if region.is_box:
        return shared
    near = np.flatnonzero(shared)
    # Small regions need a finer grid of points.
    samples = int(np.clip(16 * extent / max(float((high - low).min()), 1e-9), 8, 64))
    shared[near] = coverage([region], corners[near], extent=extent, samples=samples) * extent**2
    return shared


def coverage(
    regions: Sequence[Region], coords: npt.ArrayLike, *, extent: float, samples: int = 8
) -> npt.NDArray[np.float64]:
    """Estimate the share of each patch that is inside a region, ``(N,)``.

    Args:
        regions: regions of an image.
        coords: ``(N, 2)`` top-left corners of patches.
        extent: side of a patch.
        samples: number of sample points along each side of a patch.
    """
    corners = np.asarray(coords, dtype=np.float64).reshape(-1, 2)
    offsets = _grid(samples) * extent  # (samples^2, 2)
    share = np.zeros(len(corners))
    touched = np.zeros(len(corners), bool)  # patches on the bounding box of a region: only a few
    for region in regions:
        low, high = region.bounds
        touched |= ((corners + extent > low) & (corners < high)).all(axis=1)
    near = np.flatnonzero(touched)
    for part in np.array_split(near, max(1, -(-len(near) * len(offsets) // _POINTS))):
        points = corners[part, None] + offsets  # (k, samples^2, 2)
        share[part] = inside(regions, points).reshape(len(part), len(offsets)).mean(axis=1)
    return share


def _touch(one: Region, other: Region) -> bool:
    """Whether two bounding boxes overlap."""
    (low, high), (other_low, other_high) = one.bounds, other.bounds
    return bool(((low < other_high) & (other_low < high)).all())


def _grid(samples: int) -> Points:
    """Evenly spaced points ``(samples^2, 2)`` of the unit square."""
    steps = (np.arange(samples) + 0.5) / samples
    return np.stack(np.meshgrid(steps, steps), axis=-1).reshape(-1, 2)


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
