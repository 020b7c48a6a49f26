"""Encode the labels of a table as tensors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path

import torch
from torch import Tensor

from ips.config import TaskConfig
from ips.data.numbers import encode_number, has_label
from ips.data.table import LABEL_SEPARATOR, Row
from ips.errors import DataError, shown
from ips.tasks import build_tasks

# Labels of the first and of the second class of a binary task.
_BINARY_WORDS = (
    ("0", "false", "no", "neg", "negative"),
    ("1", "true", "yes", "pos", "positive"),
)

_TYPOS = 2  # images with the same typing error
_SPACE = re.compile(r"\s")
_WORD = re.compile(r"\d+|[^\W\d_]+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_NUMBER = re.compile(r"\d+|[ivx]+", re.I)


@dataclass(frozen=True)
class Encoded:
    """Labels as tensors, one dict per row, and the ordered class names of tasks with classes."""

    labels: list[dict[str, Tensor]]
    names: dict[str, list[str]]


def encode_labels(
    rows: Sequence[Row], tasks: Mapping[str, TaskConfig], *, source: str | Path = "the table"
) -> Encoded:
    """Encode the labels of every row as tensors.

    The label of a regression becomes a float32, that of survival a time and an event ``(2,)``.
    A multiclass label becomes an int64 class number, a binary one a float32 0 or 1, and multilabel
    ones a float32 vector ``(classes,)``. A label is the name of a class, in upper or lower case, or
    its number from 0 to ``classes - 1``. Names are numbered as in the config of the task, or else
    alphabetically; the positive class of the config comes last. A multilabel cell has any number of
    labels, separated by ``;`` or ``|``, or by spaces if neither is in the column and no name of
    the config has a space. An empty cell of a multilabel column means none of the labels. An empty
    cell of another column is a label that is missing (`Task.missing`), which is refused unless the
    row has a label of another task.

    Args:
        rows: rows of all splits, so that a class has the same number in every split.
        tasks: task of each label column, by the name of the column.
        source: file of the table, for messages.
    """
    checked = check_labels(rows, tasks, source=source)
    if checked.errors:
        raise checked.errors[0]
    return checked.encoded


@dataclass(frozen=True)
class CheckedLabels:
    """The labels of a table with all of their mistakes.

    Attributes:
        encoded: labels of the rows that have no mistake.
        rows: these rows.
        errors: one error for every mistake.
    """

    encoded: Encoded
    rows: list[Row]
    errors: list[DataError]


def check_labels(
    rows: Sequence[Row], tasks: Mapping[str, TaskConfig], *, source: str | Path
) -> CheckedLabels:
    """Encode the labels of all rows that have usable ones, and list the mistakes of the others.

    Args:
        rows, tasks, source: see `encode_labels`.
    """
    labels: list[dict[str, Tensor]] = [{} for _ in rows]
    ordered: dict[str, list[str]] = {}
    problems: list[str] = []
    wrong = _unlabelled(rows, tasks)
    if wrong:
        problems.append(_no_label([rows[i] for i in sorted(wrong)], list(tasks), len(rows)))
    for task, spec in tasks.items():
        missing = build_tasks({task: spec})[task].missing
        if not spec.has_classes:
            for i, row in enumerate(rows):
                try:
                    known = has_label(row, task, spec)
                    labels[i][task] = encode_number(row, task, spec) if known else missing
                except ValueError as error:
                    problems.append(f"{_place(row)}: {error}")
                    wrong.add(i)
            continue
        cells = _split_cells([row.labels[task] for row in rows], spec)
        try:
            names = spec.names or _class_names(rows, cells, task, spec)
        except ValueError as error:
            problems.append(str(error))
            names = _usual_names(cells, spec)
        if spec.positive is not None and spec.positive not in names:
            hint = _nearest(spec.positive, names)
            problems.append(f"tasks.{task}.positive={shown(spec.positive)} is no label{hint}")
        ordered[task] = spec.ordered(names)
        for i, (row, cell) in enumerate(zip(rows, cells, strict=True)):
            try:
                if not cell and spec.kind != "multilabel":
                    labels[i][task] = missing
                elif i not in wrong:
                    labels[i][task] = _encoded(row, cell, task, spec, names, ordered[task])
            except ValueError as error:
                problems.append(str(error))
                wrong.add(i)
    right = [i for i in range(len(rows)) if i not in wrong]
    return CheckedLabels(
        Encoded([labels[i] for i in right], ordered),
        [rows[i] for i in right],
        [DataError(f"{source}: {problem}") for problem in problems],
    )


def _encoded(
    row: Row,
    cell: Sequence[str],
    task: str,
    spec: TaskConfig,
    names: Sequence[str],
    ordered: Sequence[str],
) -> Tensor:
    """The label of a row, as a tensor."""
    words = spec.kind == "binary"
    numbers = [ordered.index(_class(row, label, names, task, words=words)) for label in cell]
    if spec.kind == "multilabel":
        label = torch.zeros(len(names))
        label[numbers] = 1
        return label
    return torch.tensor(numbers[0], dtype=torch.float32 if words else torch.int64)


def _split_cells(cells: Sequence[str], spec: TaskConfig) -> list[list[str]]:
    """Labels in each cell of a column: one or none, or any number if the task is multilabel."""
    if spec.kind != "multilabel":
        return [[cell] if cell else [] for cell in cells]
    # The few cells of one table may lack the separator of another, but names do not change.
    spaced = any(_SPACE.search(name) for name in spec.names or ())
    separator = LABEL_SEPARATOR if spaced or any(map(LABEL_SEPARATOR.search, cells)) else _SPACE
    split = [separator.split(cell) for cell in cells]
    return [[label.strip() for label in cell if label.strip()] for cell in split]


def _unlabelled(rows: Sequence[Row], tasks: Mapping[str, TaskConfig]) -> set[int]:
    """Numbers of the rows that have no label at all."""
    if any(spec.kind == "multilabel" for spec in tasks.values()):  # none of the labels is one
        return set()
    return {
        i
        for i, row in enumerate(rows)
        if not any(has_label(row, task, spec) for task, spec in tasks.items())
    }


def _no_label(empty: Sequence[Row], tasks: Sequence[str], count: int) -> str:
    names = " or ".join(map(repr, tasks))
    return (
        f"{len(empty)} of {count} rows have no label {names}, such as that of "
        f"{_place(empty[0])}: fill them in or leave the rows out"
    )


def _usual_names(cells: Sequence[Sequence[str]], spec: TaskConfig) -> list[str]:
    """The most frequent labels, where a column has more than the config has classes."""
    counts = Counter(label for cell in cells for label in cell)
    classes = 2 if spec.kind == "binary" else spec.classes
    return sorted(label for label, _ in counts.most_common(classes))


def _class_names(
    rows: Sequence[Row], cells: Sequence[Sequence[str]], task: str, spec: TaskConfig
) -> list[str]:
    """Names of the classes in a column, if the config does not have them."""
    counts = Counter(label for cell in cells for label in cell)
    found, classes = sorted(counts), spec.classes
    if spec.kind == "binary":
        classes = 2
        if all(_binary_number(label) is not None for label in found):
            return ["0", "1"]
    elif all(label.isdecimal() for label in found):
        return [str(number) for number in range(classes)]
    elif spec.kind == "ordinal":
        raise ValueError(
            f"the grades of task {task!r} are words ({shown(', '.join(found[:10]), quote=False)}): "
            f"give their order, the lowest first, as tasks.{task}.names"
        )
    if len(found) == classes:
        return found
    labels = shown(", ".join(found[:10]), quote=False)
    if len(found) > classes:  # the rarest may be a typing error
        rare = min(found, key=lambda label: (counts[label], label))
        row = next(row for row, cell in zip(rows, cells, strict=True) if rare in cell)
        if near := _close(rare, [label for label in found if counts[label] > counts[rare]]):
            raise ValueError(
                f"{_place(row)}: label {shown(rare)} of task {task!r}, did you mean {shown(near)}? "
                f"The task has classes={classes} but its column has {len(found)} different labels "
                f"({labels})"
            )
    if spec.kind == "binary":
        remedy = "rewrite them, or make the task multiclass"
        raise ValueError(
            f"the binary task {task!r} has {len(found)} different labels ({labels}), expected two, "
            f"such as 0 and 1 or no and yes: {remedy}"
        )
    raise ValueError(
        f"task {task!r} has classes={classes} but its column has {len(found)} different "
        f"labels ({labels}): correct one of the two"
    )


def _class(row: Row, label: str, names: Sequence[str], task: str, *, words: bool) -> str:
    """The class that a label means; with ``words``, also words such as yes or negative."""
    if label in names:
        return label
    same = [name for name in names if name.lower() == label.lower()]
    if len(same) == 1:
        return same[0]
    if words and (number := _binary_number(label)) is not None:
        alike = [name for name in names if _binary_number(name) == number]
        if alike:
            return alike[0]
        if all(_binary_number(name) is None for name in names):
            return names[number]
    by_number = label.isdecimal() and not any(name.isdecimal() for name in names)
    if by_number and len(label) < 10 and int(label) < len(names):
        return names[int(label)]
    raise ValueError(
        f"{_place(row)}: label {shown(label)} of task {task!r} is not one of its {len(names)} "
        f"classes{_nearest(label, names)}"
    )


def _binary_number(label: str) -> int | None:
    return next((i for i, words in enumerate(_BINARY_WORDS) if label.lower() in words), None)


def _nearest(label: str, names: Sequence[str]) -> str:
    """The end of a sentence about an unknown label: all names, and the one that may be meant."""
    near = _close(label, names)
    remedy = f"did you mean {shown(near)}?" if near else "correct the label or the classes"
    return f" ({shown(', '.join(names[:10]), quote=False)}): {remedy}"


def similar_labels(counts: Mapping[str, int]) -> dict[str, str]:
    """Labels that may be typing errors, and the far more frequent label that each may mean.

    Labels that differ in upper and lower case, and labels of one or two images that are one letter
    off a frequent one, unless they are names of related classes: the first letters differ, or only
    numbers, single letters or roman numerals do.

    >>> similar_labels({"tumor": 40, "tumour": 1, "Normal": 7, "normal": 50, "tumor2": 1})
    {'tumour': 'tumor', 'Normal': 'normal'}
    >>> similar_labels({"type B": 30, "type A": 2, "typical": 30, "atypical": 1})
    {}
    """
    typos: dict[str, str] = {}
    for label, count in counts.items():
        same = [o for o, n in counts.items() if n > count and o.lower() == label.lower()]
        usual = [o for o, n in counts.items() if n >= 5 * count and count <= _TYPOS]
        usual = [o for o in usual if _one_letter_off(label, o) and not _related(label, o)]
        near = get_close_matches(label, usual, n=1, cutoff=0.75)
        if same or near:
            typos[label] = (same or near)[0]
    return typos


def _one_letter_off(a: str, b: str) -> bool:
    """Whether a letter, not the first one, is missing, added, wrong or swapped with the next."""
    start = _shared(a, b)
    a, b = a[start:], b[start:]
    end = _shared(a[::-1], b[::-1])
    a, b = a[: len(a) - end], b[: len(b) - end]
    return start > 0 and (max(len(a), len(b)) <= 1 or (len(a) == 2 and a == b[::-1]))


def _shared(a: str, b: str) -> int:
    """Number of letters that two texts begin with, both."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


def _related(a: str, b: str) -> bool:
    """Whether labels differ only in what numbers classes: 2, II, or a single letter.

    >>> _related("Grade I", "Grade II"), _related("TypeA", "TypeB"), _related("a b", "a-b")
    (True, True, False)
    """
    (words, numbers), (other_words, other_numbers) = map(_words_and_numbers, (a, b))
    return words == other_words and numbers != other_numbers


def _words_and_numbers(label: str) -> tuple[list[str], list[str]]:
    parts = _WORD.findall(_CAMEL.sub(" ", label))
    numbers = [part for part in parts if len(part) == 1 or _NUMBER.fullmatch(part)]
    return [part for part in parts if part not in numbers], numbers


def _close(label: str, names: Sequence[str]) -> str | None:
    lower = {name.lower(): name for name in names}
    near = get_close_matches(label.lower(), lower, n=1)
    return lower[near[0]] if near else None


def _place(row: Row) -> str:
    name = shown(row.path.name, quote=False)
    return name if row.line is None else f"line {row.line}, {name}"
