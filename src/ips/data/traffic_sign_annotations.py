"""Annotation files of the Swedish traffic signs: which photographs belong to the data set.

A line is ``IMAGE.jpg:SIGN;SIGN;`` and a sign is ``VISIBILITY, right, bottom, left, top, TYPE,
NAME``. The entry ``MISC_SIGNS`` stands for other, unspecified signs and is ignored.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ips.errors import DataError, because, shown

NAMES = ["no sign", "50", "70", "80"]
"""Class names by label."""
NO_SIGN = 0

_LABELS = {f"{name}_SIGN": label for label, name in enumerate(NAMES) if label}
_VISIBILITIES = ("VISIBLE", "BLURRED", "SIDE_ROAD", "OCCLUDED")  # best first
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")

Box = tuple[float, float, float, float]
"""Left, top, right and bottom in pixels."""


@dataclass(frozen=True)
class Sign:
    """One sign on a photograph."""

    name: str  # such as 70_SIGN
    visibility: str  # checked only for the speed limits in NAMES
    box: Box

    @property
    def rank(self) -> tuple[int, float]:
        """Sort key, most visible first: visibility, then area."""
        left, top, right, bottom = self.box
        return _VISIBILITIES.index(self.visibility), -(right - left) * (bottom - top)


@dataclass(frozen=True)
class Photo:
    """One photograph, its class and the boxes of the visible signs of this class, largest first."""

    path: Path
    label: int
    boxes: tuple[Box, ...]


def read_photos(folder: Path) -> list[Photo]:
    """Photographs of one set that belong to the data set, in the order of the annotations.

    These are the photographs without any sign, and those whose most visible speed limit among 50,
    70 and 80 km/h is VISIBLE.
    """
    photos: list[Photo] = []
    for image, signs in read_annotations(folder / "annotations.txt"):
        limits = sorted((sign for sign in signs if sign.name in _LABELS), key=lambda s: s.rank)
        if not signs:
            photos.append(Photo(folder / image, label=0, boxes=()))
        elif limits and limits[0].visibility == "VISIBLE":
            best = limits[0]
            boxes = [s.box for s in limits if (s.name, s.visibility) == (best.name, "VISIBLE")]
            photos.append(Photo(folder / image, label=_LABELS[best.name], boxes=tuple(boxes)))
    if not photos:
        raise DataError(f"{folder / 'annotations.txt'} lists no image: {download_hint(folder)}")
    return photos


def read_annotations(path: Path) -> list[tuple[str, list[Sign]]]:
    """Images of an annotation file with their signs."""
    hint = download_hint(path.parent)
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(f"{path} does not exist: {hint}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = because(error, remedy=f"delete it, then {hint}")
        raise DataError(f"{path} cannot be read {reason}") from None
    images: list[tuple[str, list[Sign]]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        image, colon, entries = line.partition(":")
        try:
            if not colon or not image.strip():
                raise ValueError("expected IMAGE.jpg:SIGN;SIGN;")
            cells = [[cell.strip() for cell in entry.split(",")] for entry in entries.split(";")]
            signs = [_parse_sign(c) for c in cells if c != [""] and c[0] != "MISC_SIGNS"]
        except ValueError as error:
            raise DataError(
                f"{path}, line {number}: {error}: delete the file, then {hint}"
            ) from None
        images.append((image.strip(), signs))
    return images


def download_hint(folder: Path) -> str:
    """Advice for error messages about a missing or damaged file."""
    return f"download the data set with 'ips data traffic-signs {folder.parent}'"


def _parse_sign(cells: Sequence[str]) -> Sign:
    if len(cells) < 7:
        found = shown(", ".join(cells), quote=False)
        raise ValueError(f"a sign has 7 fields, got {len(cells)} ({found})")
    visibility, name, box = cells[0], cells[6], cells[1:5]
    if name in _LABELS and visibility not in _VISIBILITIES:
        raise ValueError(
            f"visibility {shown(visibility)}, expected one of {', '.join(_VISIBILITIES)}"
        )
    right, bottom, left, top = map(_parse_number, box)
    return Sign(name, visibility, (left, top, right, bottom))


def _parse_number(cell: str) -> float:
    """Leading number of ``cell``; some numbers are followed by a stray letter."""
    number = _NUMBER.match(cell)
    if number is None or not math.isfinite(value := float(number[0])):
        raise ValueError(f"{shown(cell)} is not a coordinate")
    return value
