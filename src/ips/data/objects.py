"""Where things are on the images of a table: boxes in a CSV, or a folder of annotation files.

    path,left,top,right,bottom,grade
    slides/017.png,120,40,180,96,high

The first column is called like that of the table of images, and has the same paths. Edges are
full-resolution pixels; ``right`` and ``bottom`` are outside of the box. A column called like a task
is optional: it says what the object shows, and objects without an entry do not matter for the task.
An image without boxes has no objects.

A folder has a GeoJSON file for each image with objects, with its name, or an ASAP file with the
groups of CAMELYON16.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ips.data.camelyon16 import INCOMPLETE_ANNOTATIONS
from ips.data.regions import Objects, Region, Size, read_outlined_regions, read_tumour_regions
from ips.data.table import read_cells
from ips.errors import DataError, shown
from ips.files import split_address

_EDGES = ("left", "top", "right", "bottom")
_SUFFIXES = (".geojson", ".json", ".xml")

Origin = Callable[[Path], tuple[int, int]]


def is_boxes(columns: Sequence[str]) -> bool:
    """Whether a table with these columns lists boxes rather than images."""
    return set(_EDGES) <= set(columns)


@dataclass(frozen=True)
class Box:
    """Left, top, right and bottom of an object, its line in the table, and its tasks."""

    edges: tuple[float, float, float, float]
    line: int
    tasks: frozenset[str]


class Boxes:
    """The boxes of a CSV by image."""

    def __init__(
        self,
        table: Path,
        *,
        images: Iterable[Path],
        exclude: Sequence[str] = (),
        root: Path,
        path: str,
        tasks: Sequence[str],
    ) -> None:
        """Read the boxes; a file without the columns is an error.

        Args:
            table: file of the boxes.
            images: files of the table of images.
            exclude: files that were left out of that table; their boxes are left out, too.
            root: folder that paths are relative to.
            path: name of the column with the files.
            tasks: names of the tasks.

        Boxes of images that the table of images lacks are ignored, unless all of them are.
        """
        columns, lines = read_cells(table, required=[path, *_EDGES])
        self.table = table
        self.errors: list[DataError] = []
        self.notes: list[str] = []
        self._boxes: dict[Path, list[Box]] = {image: [] for image in images}
        left_out = {root / name for name in exclude}
        unknown: dict[int, str] = {}
        matches = False
        for line, cells in lines:
            image = root / cells[path]
            if image in left_out:
                continue
            if image not in self._boxes:
                unknown[line] = shown(cells[path])
                continue
            matches = True
            try:
                edges = _edges([cells[edge] for edge in _EDGES])
            except ValueError as error:
                self.errors.append(DataError(f"{table}, line {line}: {error}"))
                continue
            shown_by = frozenset(task for task in tasks if task not in columns or cells[task])
            self._boxes[image].append(Box(edges, line, shown_by))
        if unknown and matches:
            line, name = next(iter(unknown.items()))
            self.notes.append(
                f"{table}: {len(unknown)} boxes are ignored, since the table of images lacks their "
                f"image, such as {name} in line {line}"
            )
        elif unknown:
            name = next(iter(unknown.values()))
            self.errors.append(
                DataError(
                    f"{table}: none of its images, such as {name}, is in the table of images: "
                    "write the paths as there"
                )
            )

    def regions(self, image: Path, task: str) -> list[Region]:
        return [Region.box(*box.edges) for box in self._boxes[image] if task in box.tasks]

    def problems(self, image: Path, size: Size | None) -> list[DataError]:
        if size is None:
            return []
        width, height = size
        return [
            DataError(
                f"{self.table}, line {box.line}: the box {_text(box.edges)} is not inside the "
                f"image of {width} x {height} px: correct it, in full-resolution pixels"
            )
            for box in self._boxes[image]
            if box.edges[2] > width or box.edges[3] > height
        ]


class AnnotationFolder:
    """A folder of GeoJSON or ASAP files that are called like the images.

    Args:
        folder: the folder.
        origin: function that returns the pixel of an image that GeoJSON coordinates count from.
    """

    errors: Sequence[DataError] = ()
    notes: Sequence[str] = ()

    def __init__(self, folder: Path, *, origin: Origin) -> None:
        files = sorted(folder.iterdir())
        self._files = {
            file.stem.lower(): file for file in files if file.suffix.lower() in _SUFFIXES
        }
        if not self._files:
            raise DataError(
                f"{folder}: has no annotation file ({', '.join(_SUFFIXES)}): choose another folder "
                "as data.objects"
            )
        self._origin = origin

    def regions(self, image: Path, task: str) -> list[Region] | None:
        file, group = split_address(image)
        name = Path(group or file.name).stem.lower()
        found = self._files.get(name)
        if found is None:
            return []
        if found.suffix.lower() != ".xml":
            return read_outlined_regions(found, origin=self._origin(image))
        return None if name in INCOMPLETE_ANNOTATIONS else read_tumour_regions(found)

    def problems(self, image: Path, size: Size | None) -> list[DataError]:
        try:
            self.regions(image, "")
        except DataError as error:
            return [error]
        return []


def open_objects(
    place: Path,
    *,
    images: Iterable[Path],
    exclude: Sequence[str],
    root: Path,
    path: str,
    tasks: Sequence[str],
    origin: Origin,
) -> Objects:
    """Open ``data.objects`` of a config; see `Boxes` and `AnnotationFolder`."""
    if place.is_dir():
        return AnnotationFolder(place, origin=origin)
    return Boxes(place, images=images, exclude=exclude, root=root, path=path, tasks=tasks)


def _edges(cells: Sequence[str]) -> tuple[float, float, float, float]:
    """Left, top, right and bottom; ValueError if they are no numbers or there is no such box."""
    try:
        left, top, right, bottom = map(float, cells)
    except ValueError:
        left = top = right = bottom = math.nan
    edges = left, top, right, bottom
    if not all(map(math.isfinite, edges)):
        raise ValueError(
            f"left, top, right and bottom are {shown(', '.join(cells), quote=False)}: give four "
            "numbers"
        )
    if left >= right or top >= bottom:
        raise ValueError(
            f"the box {_text(edges)} is empty: left must be less than right, and top less than "
            "bottom"
        )
    if left < 0 or top < 0:
        raise ValueError(f"the box {_text(edges)} is not inside the image: correct it")
    return edges


def _text(edges: Sequence[float]) -> str:
    return ", ".join(f"{edge:g}" for edge in edges)
