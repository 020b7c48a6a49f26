"""Your own images as a data set: a CSV that names files, their labels and, if you like, a split.

    path,grade,split
    slides/017.svs,high,train
    slides/018.svs,low,test

Commas, semicolons and tabs are understood, with or without a byte order mark. Files may be images,
slides or feature files, a slide in a shared feature file as ``train.h5::normal_001``.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from ips.errors import DataError
from ips.patches.features import split_address
from ips.patches.source import PatchSource

SPLITS = ("train", "val", "test")

_BINARY = {
    "0": ("0", "false", "no", "neg", "negative"),
    "1": ("1", "true", "yes", "pos", "positive"),
}


@dataclass(frozen=True)
class Row:
    """One image: its file, a label as written per task, and its split where the table has one."""

    path: Path
    labels: dict[str, str]
    split: str | None


class LabelTask(Protocol):
    """What is to be learnt from a label column."""

    @property
    def kind(self) -> str:
        """``multiclass``, ``binary`` or ``multilabel``."""
        ...

    @property
    def classes(self) -> int:
        """Number of classes."""
        ...


@dataclass(frozen=True)
class Encoded:
    """Labels as numbers: one dict of tensors per row, and per task the class names by number."""

    labels: list[dict[str, Tensor]]
    names: dict[str, list[str]]


def read_table(
    csv_path: str | Path,
    *,
    root: str | Path | None = None,
    path: str = "path",
    tasks: Sequence[str],
) -> list[Row]:
    """The rows of a CSV, checked: every file is there, once, and every column asked for.

    Args:
        csv_path: the table.
        root: folder that the paths in it are relative to, by default the table's own.
        path: name of the column with the files.
        tasks: names of the label columns. A column ``split``, in whatever case, is taken along if
            there is one.
    """
    table = Path(csv_path)
    folder = table.parent if root is None else Path(root)
    columns, lines = _read_lines(table)
    for column in (path, *tasks):
        if column not in columns:
            near = get_close_matches(column, columns, n=1)
            hint = f", did you mean {near[0]!r}?" if near else ""
            raise DataError(f"{table}: no column {column!r} among {', '.join(columns)}{hint}")
        if columns.count(column) > 1:
            raise DataError(f"{table}: two columns are called {column!r}: rename one")
    splits = [column for column in columns if column.lower() == "split" and column not in tasks]
    if len(splits) > 1:
        raise DataError(f"{table}: two columns are called {' and '.join(splits)}: rename one")

    rows: list[Row] = []
    first_line: dict[Path, int] = {}
    for line, cells in lines:
        if not cells[path]:
            raise DataError(f"{table}, line {line}: no file in column {path!r}: fill it in")
        split = cells[splits[0]].lower() if splits else None
        if split is not None and split not in SPLITS:
            raise DataError(
                f"{table}, line {line}: split {cells[splits[0]]!r}, expected train or test"
            )
        file = folder / cells[path]
        if file in first_line:
            raise DataError(
                f"{table}, lines {first_line[file]} and {line}: both name {cells[path]}: keep one"
            )
        first_line[file] = line
        rows.append(Row(path=file, labels={task: cells[task] for task in tasks}, split=split))

    missing = [str(row.path) for row in rows if not split_address(row.path)[0].exists()]
    if missing:
        raise DataError(
            f"{table}: {len(missing)} of {len(rows)} files are not there, such as "
            f"{', '.join(missing[:3])}: paths are relative to {folder}, set root if they are "
            f"elsewhere"
        )
    return rows


def _read_lines(table: Path) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """Column names, and each line that is not blank with its number."""
    try:
        with table.open(encoding="utf-8-sig", newline="") as file:
            header = file.readline()
            file.seek(0)
            reader = csv.reader(file, delimiter=max(",;\t", key=header.count), strict=True)
            lines = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader]
    except FileNotFoundError as error:
        raise DataError(f"{table}: no such table: check the path") from error
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{table}: not a readable CSV ({error}): save it as UTF-8 CSV") from error

    lines = [(number, cells) for number, cells in lines if any(cells)]
    if len(lines) < 2:
        raise DataError(f"{table}: no images in it: write a header line and a line per image")
    (_, columns), *rest = lines
    for number, cells in rest:
        if len(cells) != len(columns):
            raise DataError(
                f"{table}, line {number}: {len(cells)} cells under {len(columns)} columns: put "
                f"quotes around a cell that holds the separator"
            )
    return columns, [(number, dict(zip(columns, cells, strict=True))) for number, cells in rest]


def encode_labels(
    rows: Sequence[Row],
    tasks: Mapping[str, LabelTask],
    *,
    names: Mapping[str, Sequence[str]] | None = None,
) -> Encoded:
    """Labels as numbers: an int64 class, a float32 0 or 1, or float32 ``(classes,)`` per task.

    Numbers from 0 to ``classes - 1`` stay as they are; names are numbered in alphabetical order.
    A ``multilabel`` cell holds any number of them, none included, separated by ``;`` or ``|``, or
    by spaces where the column has neither.

    Args:
        rows: all that are to be numbered alike, whichever their split.
        tasks: by the name of the label column.
        names: those an earlier call returned, to number other rows as it did.
    """
    columns: dict[str, list[Tensor]] = {}
    known: dict[str, list[str]] = {}
    for task, spec in tasks.items():
        cells = _split_cells(rows, task, several=spec.kind == "multilabel")
        if spec.kind == "binary":
            known[task] = ["0", "1"]
            cells = [[_binary(row, task)] for row in rows]
        elif names is not None and task in names:
            known[task] = list(names[task])
        else:
            known[task] = _class_names(cells, task, spec.classes)
        numbers = [_numbers(row, c, known[task], task) for row, c in zip(rows, cells, strict=True)]
        if spec.kind == "multilabel":
            columns[task] = [_indicator(several, len(known[task])) for several in numbers]
        else:
            dtype = torch.float32 if spec.kind == "binary" else torch.int64
            columns[task] = [torch.tensor(one, dtype=dtype) for (one,) in numbers]
    labels = [{task: columns[task][i] for task in tasks} for i in range(len(rows))]
    return Encoded(labels=labels, names=known)


def _split_cells(rows: Sequence[Row], task: str, *, several: bool) -> list[list[str]]:
    """The labels in each cell of a column: exactly one, or ``several`` and possibly none."""
    cells = [row.labels[task] for row in rows]
    if several:
        separator = r"[;|]" if any(";" in cell or "|" in cell for cell in cells) else r"\s"
        split = [re.split(separator, cell) for cell in cells]
        return [[label.strip() for label in cell if label.strip()] for cell in split]
    empty = [str(row.path) for row in rows if not row.labels[task]]
    if empty:
        raise DataError(
            f"{len(empty)} of {len(rows)} rows have no label {task!r}, such as that of "
            f"{empty[0]}: fill them in or leave the rows out"
        )
    return [[cell] for cell in cells]


def _binary(row: Row, task: str) -> str:
    for value, words in _BINARY.items():
        if row.labels[task].lower() in words:
            return value
    raise DataError(
        f"{row.path}: label {row.labels[task]!r} of the binary task {task!r}, expected 0 or 1, "
        f"false or true, no or yes, neg or pos: rewrite it, or make the task multiclass"
    )


def _class_names(cells: Sequence[Sequence[str]], task: str, classes: int) -> list[str]:
    found = sorted({label for cell in cells for label in cell})
    if all(label.isdecimal() for label in found):
        return [str(number) for number in range(classes)]
    if len(found) != classes:
        raise DataError(
            f"task {task!r} has classes={classes} but its column holds {len(found)} different "
            f"labels ({', '.join(found[:10])}): correct one of the two"
        )
    return found


def _numbers(row: Row, labels: Sequence[str], names: Sequence[str], task: str) -> list[int]:
    for label in labels:
        if label not in names:
            raise DataError(
                f"{row.path}: label {label!r} of task {task!r} is not one of its {len(names)} "
                f"classes ({', '.join(names[:10])}): correct the label or the number of classes"
            )
    return [names.index(label) for label in labels]


def _indicator(numbers: Sequence[int], classes: int) -> Tensor:
    present = torch.zeros(classes, dtype=torch.float32)
    present[list(numbers)] = 1
    return present


class TableData:
    """Rows of a table as a data set of ``(patches, labels)``; a file is opened when it is its turn.

    Args:
        rows: of ``read_table``.
        labels: of ``encode_labels``, one per row.
        open: makes the patches of one file.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        *,
        labels: Sequence[dict[str, Tensor]],
        open: Callable[[Path], PatchSource],
    ) -> None:
        if len(rows) != len(labels):
            raise DataError(f"{len(rows)} rows but {len(labels)} labels: encode the same rows")
        self.rows = rows
        self.labels = labels
        self.open = open

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[PatchSource, dict[str, Tensor]]:
        return self.open(self.rows[index].path), self.labels[index]
