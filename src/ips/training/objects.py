"""Where things are on the images of a data set, if it knows.

Such a data set has a method ``objects(index, task)``. A table also has ``object_problems(index,
source)``, since its objects come from a file that may be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ips.config import TableConfig
from ips.data.objects import open_objects
from ips.data.regions import Objects, Region
from ips.data.table import Row
from ips.errors import DataError
from ips.patches import PatchSource


def objects_of(data: object, index: int, task: str) -> list[Region] | None:
    """Regions of the objects on an image that matter for a task; None if they are unknown."""
    find: Callable[[int, str], list[Region] | None] | None = getattr(data, "objects", None)
    return None if find is None else find(index, task)


def object_problems(data: object, index: int, source: PatchSource) -> list[DataError]:
    """An error for each object that cannot be right on the image, which is ``source``."""
    find: Callable[[int, PatchSource], list[DataError]] | None
    find = getattr(data, "object_problems", None)
    return [] if find is None else find(index, source)


def table_objects(
    data: TableConfig,
    rows: Sequence[Row],
    tasks: Sequence[str],
    open: Callable[[Path], PatchSource],
) -> Objects | None:
    """The objects of a table, with all mistakes in their file; None without ``data.objects``."""
    if data.objects is None:
        return None
    return open_objects(
        data.objects,
        images=[row.path for row in rows],
        exclude=data.exclude,
        root=data.root or data.csv.parent,
        path=data.path,
        tasks=tasks,
        origin=partial(_scanned_corner, open),
    )


def _scanned_corner(open: Callable[[Path], PatchSource], path: Path) -> tuple[int, int]:
    """Left and top of the scanned region of an image, where QuPath's coordinates begin."""
    with open(path) as source:
        left, top, _, _ = source.parts[0].area
    return left, top
