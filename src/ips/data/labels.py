"""Encode the labels of a table as tensors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ips.config import TaskConfig
from ips.data.table import Row
from ips.errors import DataError, shown

_BINARY_WORDS = {
    "0": ("0", "false", "no", "neg", "negative"),
    "1": ("1", "true", "yes", "pos", "positive"),
}


@dataclass(frozen=True)
class Encoded:
    """Labels as tensors, one dict per row, and the ordered class names of each task."""

    labels: list[dict[str, Tensor]]
    names: dict[str, list[str]]


def encode_labels(
    rows: Sequence[Row], tasks: Mapping[str, TaskConfig], *, source: str | Path = "the table"
) -> Encoded:
    """Encode the labels of every row as tensors.

    A multiclass label becomes an int64 class number, a binary one a float32 0 or 1, and multilabel
    ones a float32 vector ``(classes,)``. Labels from 0 to ``classes - 1`` keep their number. Names
    are numbered as in the config of the task, or else alphabetically. A multilabel cell has any
    number of labels, separated by ``;`` or ``|``, or by spaces if the column has neither.

    Args:
        rows: rows of all splits, so that a class has the same number in every split.
        tasks: task of each label column, by the name of the column.
        source: file of the table, for messages.
    """
    try:
        return _encode(rows, tasks)
    except ValueError as error:
        raise DataError(f"{source}: {error}") from None


def _encode(rows: Sequence[Row], tasks: Mapping[str, TaskConfig]) -> Encoded:
    labels: list[dict[str, Tensor]] = [{} for _ in rows]
    names: dict[str, list[str]] = {}
    for task, spec in tasks.items():
        cells = _split_cells(rows, task, multilabel=spec.kind == "multilabel")
        if spec.kind == "binary":
            names[task] = ["0", "1"]
            cells = [[_binary_label(row, task)] for row in rows]
        elif spec.names is not None:
            names[task] = list(spec.names)
        else:
            names[task] = _class_names(cells, task, spec.classes)
        for row, cell, encoded in zip(rows, cells, labels, strict=True):
            numbers = _class_numbers(row, cell, names[task], task)
            if spec.kind == "multilabel":
                encoded[task] = torch.zeros(len(names[task]))
                encoded[task][numbers] = 1
            else:
                dtype = torch.float32 if spec.kind == "binary" else torch.int64
                encoded[task] = torch.tensor(numbers[0], dtype=dtype)
    return Encoded(labels, names)


def _split_cells(rows: Sequence[Row], task: str, *, multilabel: bool) -> list[list[str]]:
    """Labels in each cell of a column: exactly one, or any number if ``multilabel``."""
    cells = [row.labels[task] for row in rows]
    if multilabel:
        separator = r"[;|]" if any(";" in cell or "|" in cell for cell in cells) else r"\s"
        split = [re.split(separator, cell) for cell in cells]
        return [[label.strip() for label in cell if label.strip()] for cell in split]
    if empty := [row.path for row in rows if not row.labels[task]]:
        raise ValueError(
            f"{len(empty)} of {len(rows)} rows have no label {task!r}, such as that of "
            f"{shown(empty[0].name)}: fill them in or leave the rows out"
        )
    return [[cell] for cell in cells]


def _binary_label(row: Row, task: str) -> str:
    for value, words in _BINARY_WORDS.items():
        if row.labels[task].lower() in words:
            return value
    raise ValueError(
        f"{_name(row)}: label {shown(row.labels[task])} of the binary task {task!r}, expected 0 or "
        f"1, false or true, no or yes, neg or pos: rewrite it, or make the task multiclass"
    )


def _class_names(cells: Sequence[Sequence[str]], task: str, classes: int) -> list[str]:
    found = sorted({label for cell in cells for label in cell})
    if all(label.isdecimal() for label in found):
        return [str(number) for number in range(classes)]
    if len(found) != classes:
        raise ValueError(
            f"task {task!r} has classes={classes} but its column has {len(found)} different "
            f"labels ({shown(', '.join(found[:10]), quote=False)}): correct one of the two"
        )
    return found


def _class_numbers(row: Row, labels: Sequence[str], names: Sequence[str], task: str) -> list[int]:
    for label in labels:
        if label not in names:
            known = shown(", ".join(names[:10]), quote=False)
            raise ValueError(
                f"{_name(row)}: label {shown(label)} of task {task!r} is not one of its "
                f"{len(names)} classes ({known}): correct the label or the number of classes"
            )
    return [names.index(label) for label in labels]


def _name(row: Row) -> str:
    return shown(row.path.name, quote=False)
