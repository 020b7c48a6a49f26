"""Image files and their annotations: find them, name them, and open each image only once."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from os.path import commonpath
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from ips.annotations import read_outlines
from ips.config import Config
from ips.errors import DataError, ImageError
from ips.images import Image, open_image
from ips.inputs import Bags, bag_files, find_bags
from ips.patches import SlideFinder, open_features
from ips.patches.opening import FEATURE_SUFFIXES

_ANNOTATION_COLOUR = "#ffa90e"
_MAX_POINTS = 500_000  # a browser can still draw this many


def find_images(given: Iterable[Path], config: Config, *, features: bool = False) -> Bags:
    """List the given files, the images in given folders and those that CSVs name, as bags.

    Pictures that ips wrote into a folder are skipped. For bags of several images see
    `ips.inputs.find_bags`.

    Args:
        given: files, folders and CSVs.
        config: configuration of the model, which says what a bag is.
        features: whether the model takes feature files instead of images; the other kind is an
            error, and skipped in a folder that has both.
    """
    found: Bags = {}
    for path in given:
        if not path.exists():
            raise ImageError(f"{path} does not exist: check the path")
        bags = find_bags([path], config, features=features)
        if path.is_dir():
            right = {
                name: [file for file in files if is_feature_file(Path(file)) == features]
                for name, files in bags.items()
            }
            bags = {name: files for name, files in right.items() if files} or bags
        for name, files in bags.items():
            found[name] = list(dict.fromkeys([*found.get(name, ()), *files]))
    for file in bag_files(found):
        if features and not is_feature_file(Path(file)):
            raise DataError(
                f"{file}: the model was trained on features: give feature files, and the folder of "
                "their slides as --slides"
            )
        if is_feature_file(Path(file)) and not features:
            raise DataError(f"{file}: holds features, but the model takes images: give the images")
    return found


def is_feature_file(path: Path) -> bool:
    """Whether a file holds features, by its ending."""
    return path.suffix.lower() in FEATURE_SUFFIXES


def find_slide(path: Path, slides: SlideFinder) -> Path:
    """The slide of a feature file; it is an error if features cannot be shown on one."""
    bag = open_features(path)
    slide = bag.find_slide(slides)
    if slide is None:
        raise DataError(
            f"{path}: its slide was not found, so there is nothing to show: give the folder of the "
            "slides as --slides, or use `ips explain`"
        )
    if bag.extent is None and bag.on_slide(slides).extent is None:
        raise DataError(
            f"{path}: does not say how large its patches are: give --patch-size, their side in "
            "pixels as they were read, with --level or --mpp if that was not the full resolution"
        )
    return slide


def display_names(paths: list[Path]) -> list[str]:
    """File names, or if some are equal, paths relative to the common folder."""
    if len({path.name for path in paths}) == len(paths):
        return [path.name for path in paths]
    absolute = [path.absolute() for path in paths]
    root = commonpath([path.parent for path in absolute])
    return [path.relative_to(root).as_posix() for path in absolute]


def bag_names(bags: Bags) -> dict[str, str]:
    """Names of bags on the page: see `display_names` for single images."""
    single = [Path(name) for name, files in bags.items() if files == [name]]
    shown = dict(zip(map(str, single), display_names(single), strict=True))
    return {name: shown.get(str(Path(name)), name) for name in bags}


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
        with self._lock:
            try:
                modified = path.stat().st_mtime_ns
            except OSError:  # `open_image` reports it
                modified = None
            image = self._images.get((path, modified))
            if image is None:
                image = self._images[path, modified] = open_image(path, white=self._white)
            return image, modified
