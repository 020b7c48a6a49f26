"""Annotations that pathologists drew in ASAP: its XML to polygons, and what of a patch they cover.

    <Annotation Name=".." PartOfGroup="Tumor" Type="Polygon">
      <Coordinates><Coordinate Order="0" X="12.5" Y="40"/> ...

Letters: n points or corners, N patches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt

from ips.errors import DataError

Points = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

#: CAMELYON16's groups of outlines of tumour, and of what is none, also within one.
TUMOUR = ("_0", "_1", "Tumor")
OTHER = ("_2", "Exclusion", "None")

# Points looked at together: bounds memory.
_POINTS = 1 << 18


@dataclass(frozen=True)
class Region:
    """An outline that someone drew.

    Args:
        polygon: ``(n, 2)`` corners as x, y in level-0 pixels.
        group: as ASAP calls it.
        tumour: whether there is tumour inside; otherwise there is none, also where it lies within
            an outline of tumour.
    """

    polygon: Points
    group: str
    tumour: bool


def read_asap(path: str | Path) -> list[Region]:
    """The outlines in a file of ASAP, in its order; marks of fewer than three corners have no area.

    >>> regions = read_asap("tumor_001.xml")  # doctest: +SKIP
    """
    path = Path(path)
    try:
        root = ElementTree.parse(path).getroot()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}): check the path") from error
    except ElementTree.ParseError as error:
        raise DataError(f"{path}: not a whole XML file ({error}): copy it again") from error
    regions = []
    for annotation in root.iter("Annotation"):
        polygon, group = _polygon(annotation, path), annotation.get("PartOfGroup", "None")
        if group not in (*TUMOUR, *OTHER):
            raise DataError(
                f"{path}: annotation {annotation.get('Name')!r} is of the group {group!r}, "
                f"expected {', '.join(TUMOUR)} for tumour or {', '.join(OTHER)} for what is none: "
                "rename the group in ASAP"
            )
        if len(polygon) > 2:
            regions.append(Region(polygon, group, group in TUMOUR))
    return regions


def _polygon(annotation: ElementTree.Element, path: Path) -> Points:
    try:
        corners = sorted(
            (float(c.attrib["Order"]), float(c.attrib["X"]), float(c.attrib["Y"]))
            for c in annotation.iter("Coordinate")
        )
    except (KeyError, ValueError) as error:
        raise DataError(
            f"{path}: a Coordinate of annotation {annotation.get('Name')!r} lacks Order, X or Y, "
            f"or one of them is no number ({error}): correct it"
        ) from error
    return np.array(corners, dtype=np.float64).reshape(-1, 3)[:, 1:]  # (n, 2)


def inside(regions: Sequence[Region], points: npt.ArrayLike) -> Mask:
    """Which of the points ``(n, 2)`` lie in an outline of tumour and in none of what is none."""
    points = np.asarray(points, dtype=np.float64).reshape(-1, 2)
    tumour, other = np.zeros(len(points), bool), np.zeros(len(points), bool)
    for region in regions:
        part = tumour if region.tumour else other
        part |= _within(region.polygon, points)
    return tumour & ~other


def coverage(
    regions: Sequence[Region], coords: npt.ArrayLike, *, extent: float, samples: int = 8
) -> npt.NDArray[np.float64]:
    """Which share of each patch is tumour, ``(N,)``, by ``samples`` x ``samples`` points of it.

    Args:
        regions: of ``read_asap``.
        coords: ``(N, 2)`` top-left corners of patches in level-0 pixels.
        extent: side of a patch in level-0 pixels.
        samples: points along a side.
    """
    corners = np.asarray(coords, dtype=np.float64).reshape(-1, 2)
    steps = (np.arange(samples) + 0.5) * (extent / samples)
    offsets = np.stack(np.meshgrid(steps, steps), axis=-1).reshape(-1, 2)  # (samples^2, 2)
    share = np.zeros(len(corners))
    near = np.flatnonzero(_touched(regions, corners, extent))
    for part in np.array_split(near, max(1, -(-len(near) * len(offsets) // _POINTS))):
        points = corners[part, None] + offsets  # (k, samples^2, 2)
        share[part] = inside(regions, points).reshape(len(part), len(offsets)).mean(axis=1)
    return share


def _touched(regions: Sequence[Region], corners: Points, extent: float) -> Mask:
    """Which patches could hold tumour, by the box round each outline: most hold none."""
    touched = np.zeros(len(corners), bool)
    for region in regions:
        if region.tumour:
            low, high = region.polygon.min(axis=0), region.polygon.max(axis=0)
            touched |= ((corners + extent > low) & (corners < high)).all(axis=1)
    return touched


def _within(polygon: Points, points: Points) -> Mask:
    """Which points lie in a polygon: those with an odd number of its edges to their left.

    Points of one height share the search for the edges that cross it.
    """
    found = np.zeros(len(points), bool)
    (x, y), (x_next, y_next) = polygon.T, np.roll(polygon, -1, axis=0).T
    low, high = polygon.min(axis=0), polygon.max(axis=0)
    near = np.flatnonzero(((points >= low) & (points <= high)).all(axis=1))
    heights, height_of = np.unique(points[near, 1], return_inverse=True)
    order = np.argsort(height_of, kind="stable")
    rows = np.split(near[order], np.flatnonzero(np.diff(height_of[order])) + 1)
    for height, row in zip(heights, rows, strict=False):  # none of either gives one empty row
        crossing = (y <= height) != (y_next <= height)
        rise = (height - y[crossing]) / (y_next[crossing] - y[crossing])
        edges = np.sort(x[crossing] + rise * (x_next[crossing] - x[crossing]))
        found[row] = np.searchsorted(edges, points[row, 0]) % 2 == 1
    return found
