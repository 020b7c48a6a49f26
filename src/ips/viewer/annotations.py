"""Annotations of an image: find their file, and prepare the outlines for the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ips.annotations import read_outlines
from ips.errors import DataError
from ips.images import Image

_SUFFIXES = (".geojson", ".xml", ".json")
_COLOUR = "#ffa90e"
_MAX_POINTS = 500_000  # a browser can still draw this many


def find_annotations(image: Path, given: Path | None) -> Path | None:
    """Return the file of an image's annotations, None if there is none.

    It is ``given`` itself, or has the name of the image and is in the folder ``given`` or, without
    one, beside the image.
    """
    if given is not None and given.is_file():
        return given
    for suffix in _SUFFIXES if given is not None else _SUFFIXES[:2]:  # .json may be anything
        if (path := (given or image.parent) / f"{image.stem}{suffix}").is_file():
            return path
    return None


def annotation_shapes(path: Path, image: Image) -> list[dict[str, Any]]:
    """Read the outlines in ``path`` as the page draws them: kind, lines, name and colour."""
    outlines = read_outlines(path, origin=image.bounds[:2])
    if sum(len(line) for outline in outlines for line in outline.lines) > _MAX_POINTS:
        raise DataError(
            f"{path.name}: more than {_MAX_POINTS:,} points are too many to draw: export fewer or "
            "simpler annotations"
        )
    return [
        {
            "kind": outline.kind,
            "lines": outline.lines,
            "name": outline.group or outline.name,
            "colour": outline.colour or _COLOUR,
        }
        for outline in outlines
    ]
