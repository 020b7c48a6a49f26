"""Encode the labels of a table as tensors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ips.data.table import Row
from ips.errors import DataError

_BINARY = {
    "0": ("0", "false", "no", "neg", "negative"),
    "1": ("1", "true", "yes", "pos", "positive"),
}


class LabelTask(Protocol):
    """Task of a label column."""

    @property
    def kind(self) -> str:
        """``multiclass``, ``binary`` or ``multilabel``."""

    @property
    def classes(self) -> int:
        """Number of classes."""


@dataclass(frozen=True)
class Encoded:
    """Labels as tensors, one dict per row, and the class names of each task by number."""

    labels: list[dict[str, Tensor]]
    names: dict[str, list[str]]


def encode_labels(
    rows: Sequence[Row],
    tasks: Mapping[str, LabelTask],
    *,
    names: Mapping[str, Sequence[str]] | None = None,
) -> Encoded:
    """Encode labels: int64 classes, float32 0 or 1 for binary, float32 ``(classes,)`` multilabel.

    Numbers from 0 to ``classes - 1`` are kept; names are numbered in alphabetical order. A
    ``multilabel`` cell has any number of labels, separated by ``;`` or ``|``, or by spaces if the
    column has neither.

    Args:
        rows: rows of all splits, so that all get the same numbers.
        tasks: tasks by the name of the label column.
        names: class names from an earlier call, to encode other rows in the same way.
    """
    columns: dict[str, list[Tensor]] = {}
    known: dict[str, list[str]] = {}
    for task, spec in tasks.items():
        cells = _split_cells(rows, task, multilabel=spec.kind == "multilabel")
        if spec.kind == "binary":
            known[task] = ["0", "1"]
            cells = [[_binary(row, task)] for row in rows]
        elif names is not None and task in names:
            known[task] = list(names[task])
        else:
            known[task] = _class_names(cells, task, spec.classes)
        numbers = [_numbers(row, c, known[task], task) for row, c in zip(rows, cells, strict=True)]
        if spec.kind == "multilabel":
            columns[task] = [_multi_hot(labels, len(known[task])) for labels in numbers]
        else:
            dtype = torch.float32 if spec.kind == "binary" else torch.int64
            columns[task] = [torch.tensor(label, dtype=dtype) for (label,) in numbers]
    labels = [{task: columns[task][i] for task in tasks} for i in range(len(rows))]
    return Encoded(labels=labels, names=known)


def _split_cells(rows: Sequence[Row], task: str, *, multilabel: bool) -> list[list[str]]:
    """Labels in each cell of a column: exactly one, or any number if ``multilabel``."""
    cells = [row.labels[task] for row in rows]
    if multilabel:
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
            f"task {task!r} has classes={classes} but its column has {len(found)} different "
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


def _multi_hot(numbers: Sequence[int], classes: int) -> Tensor:
    present = torch.zeros(classes, dtype=torch.float32)
    present[list(numbers)] = 1
    return present
