"""Image files and their annotations: find them, name them, and open each image only once."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from os.path import commonpath
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from ips.annotations import read_outlines
from ips.errors import DataError, ImageError
from ips.images import Image, open_image
from ips.inputs import list_images
from ips.patches.opening import FEATURE_SUFFIXES

_ANNOTATION_SUFFIXES = (".geojson", ".xml", ".json")
_ANNOTATION_COLOUR = "#ffa90e"
_MAX_POINTS = 500_000  # a browser can still draw this many


def find_images(given: Iterable[Path]) -> list[Path]:
    """List the given files and the images in the given folders, each once.

    Pictures that ips wrote into a folder are skipped.
    """
    found: dict[Path, None] = {}
    for path in given:
        if not path.exists():
            raise ImageError(f"{path} does not exist: check the path")
        files = list_images(path) if path.is_dir() else [path]
        found |= dict.fromkeys(files)
    return list(found)


def display_names(paths: list[Path]) -> list[str]:
    """File names, or if some are equal, paths relative to the common folder."""
    if len({path.name for path in paths}) == len(paths):
        return [path.name for path in paths]
    absolute = [path.absolute() for path in paths]
    root = commonpath([path.parent for path in absolute])
    return [path.relative_to(root).as_posix() for path in absolute]


def find_annotations(image: Path, given: Path | None) -> Path | None:
    """Return the file of an image's annotations, None if there is none.

    It is ``given`` itself, or has the name of the image and is in the folder ``given`` or, without
    one, beside the image.
    """
    if given is not None and given.is_file():
        return given
    suffixes = (
        _ANNOTATION_SUFFIXES if given is not None else _ANNOTATION_SUFFIXES[:2]
    )  # .json may be anything
    for suffix in suffixes:
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
            "colour": outline.colour or _ANNOTATION_COLOUR,
        }
        for outline in outlines
    ]


class SharedImages:
    """Open images that all threads share, each as long as one of them uses it.

    Args:
        white: see `ips.images.open_image`.
    """

    def __init__(self, *, white: float | None = None) -> None:
        self._white = white
        self._lock = threading.Lock()
        self._images: WeakValueDictionary[tuple[Path, int | None], Image] = WeakValueDictionary()

    def open(self, path: Path) -> tuple[Image, int | None]:
        """The image as its file is now, and the file's modification time in nanoseconds."""
        if path.suffix.lower() in FEATURE_SUFFIXES:
            raise ImageError(
                f"{path.name} holds features, which cannot be shown: use `ips explain` to see the "
                "attention of a model for features"
            )
        with self._lock:
            try:
                modified = path.stat().st_mtime_ns
            except OSError:  # `open_image` reports it
                modified = None
            image = self._images.get((path, modified))
            if image is None:
                image = self._images[path, modified] = open_image(path, white=self._white)
            return image, modified
