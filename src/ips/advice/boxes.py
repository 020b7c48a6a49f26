"""A table of boxes beside the images, and the usual size of its objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from ips.data.cells import is_table
from ips.data.objects import Boxes, is_boxes
from ips.data.table import read_cells
from ips.errors import DataError
from ips.files import list_files


@dataclass(frozen=True)
class FoundBoxes:
    """A table of boxes, and the median of their longer sides in pixels."""

    table: Path
    side: int


def find_boxes(
    folder: Path, *, images: Sequence[Path], root: Path, path: str | None, tasks: Sequence[str]
) -> FoundBoxes | None:
    """The first table in a folder with boxes on some of the images; None if there is none.

    Args:
        root: folder that its paths are relative to.
        path: name of its column of files; None for any column.
        tasks: names of the tasks that the boxes must matter for.
    """
    for table in list_files([folder], accept=is_table):
        try:
            columns, _ = read_cells(table)
        except DataError:  # some other file
            continue
        if not is_boxes(columns):
            continue
        for column in columns:
            if column != path and path is not None:
                continue
            boxes = Boxes(table, images=images, root=root, path=column, tasks=tasks)
            if sides := _longer_sides(boxes, images, tasks):
                return FoundBoxes(table, max(round(median(sides)), 1))
    return None


def _longer_sides(boxes: Boxes, images: Sequence[Path], tasks: Sequence[str]) -> list[float]:
    sides = []
    for image in images:
        for task in tasks:
            for region in boxes.regions(image, task):
                low, high = region.bounds
                sides.append(float((high - low).max()))
    return sides
