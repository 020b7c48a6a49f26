"""Which column of a table holds the files, the labels, the patients and the split."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ips.advice.targets import is_measurement, survival_pairs
from ips.data.table import (
    LABEL_SEPARATOR,
    NO_GROUP,
    PATH_NAMES,
    SPLIT_WORDS,
    is_group_name,
    two_groups,
)
from ips.errors import DataError, shown

#: Asks a person to choose one of some names; gets the question and the names.
Ask = Callable[[str, Sequence[str]], str]
Cells = Mapping[str, str]

_LABELS = ("label", "labels", "class", "target", "category", "diagnosis", "ground_truth", "y")
_SPLITS = ("split", "set", "subset", "partition", "phase", "dataset")

#: Further words for a split, beside those that `read_table` accepts.
OTHER_SPLIT_WORDS = {"training": "train", "valid": "val", "dev": "val", "testing": "test"}

_FEWEST_GROUPS = 10  # fewer may be cameras or laboratories, which cannot be divided into splits
_MAX_CLASSES = 50
_MAX_NUMBERS = 20  # more different numbers are a measurement, such as an age


def split_word(text: str) -> str | None:
    """The word of `read_table` for a split; None if it is not one.

    >>> split_word("Training"), split_word("val"), split_word("7")
    ('train', 'val', None)
    """
    word = OTHER_SPLIT_WORDS.get(text.lower(), text.lower())
    return word if word in SPLIT_WORDS else None


def split_column(columns: Sequence[str], rows: Sequence[Cells]) -> str | None:
    """The column that says train, val or test; None if there is none."""
    for name in _SPLITS:
        for column in columns:
            words = [split_word(row[column]) for row in rows] if column.lower() == name else []
            if words and sum(word is not None for word in words) > len(words) / 2:
                return column
    return None


def group_column(
    table: Path, columns: Sequence[str], rows: Sequence[Cells], given: str | None
) -> str | None:
    """The column with patients or other groups: the given one, or one with a known name.

    Of two, such as patient and case, it is the one whose groups contain those of the other.
    """
    if given is not None:
        return None if given == NO_GROUP else given
    found = [column for column in columns if is_group_name(column)]
    for column in found:
        if all(_contains(rows, column, other) for other in found):
            return column
    if found:
        raise two_groups(table, found, "give one with --group")
    return None


def repeating_columns(columns: Sequence[str], rows: Sequence[Cells]) -> list[str]:
    """Columns of names that several images share, such as the street they were taken in."""
    found = []
    for column in columns:
        cells = [row[column] for row in rows]
        names = set(cells)
        filled = "" not in names and not all(_is_number(name) for name in names)
        if filled and are_groups(cells):
            found.append(column)
    return found


def are_groups(names: Sequence[str]) -> bool:
    """Whether the names of all images can be those of groups: many, and of several images each."""
    return _FEWEST_GROUPS <= len(set(names)) <= len(names) / 2


def _contains(rows: Sequence[Cells], outer: str, inner: str) -> bool:
    """Whether all rows with the same ``inner`` have the same ``outer``."""
    first: dict[str, str] = {}
    return all(first.setdefault(row[inner], row[outer]) == row[outer] for row in rows)


def path_order(column: str) -> int:
    """Rank of a column among those that name files equally well."""
    name = column.lower()
    return PATH_NAMES.index(name) if name in PATH_NAMES else len(PATH_NAMES)


def label_columns(
    table: Path,
    columns: Sequence[str],
    rows: Sequence[Cells],
    *,
    given: Sequence[str],
    taken: Sequence[str | None],
    ask: Ask | None,
) -> list[str]:
    """The label columns: the given ones, or the only column that can be one.

    Classes come before measurements. Times until an event come with the column of the event.

    Args:
        table: file of the table, for messages.
        given: columns that the user names.
        taken: columns that are files, groups or the split.
        ask: asks which one of several it is; without it, that is an error.
    """
    for column in given:
        problem = _no_label(rows, column)
        if problem is not None and not is_measurement(rows, column):
            raise DataError(f"{table}: --label {column}: {problem}")
    if given:
        return list(given)
    free = [
        c for c in dict.fromkeys(columns) if c and c not in taken and c.lower() not in PATH_NAMES
    ]
    free = [column for column in free if not is_group_name(column)]
    found = [column for column in free if _no_label(rows, column) is None]
    measured = [c for c in free if c not in found and is_measurement(rows, c)]
    pairs = survival_pairs(free, rows)
    if len(pairs) == 1 and set(found) <= set(pairs.values()):
        return [column for pair in pairs.items() for column in pair]
    named = [column for column in [*found, *measured] if column.lower() in _LABELS]
    if len(named) == 1 or len(found) == 1:
        return named if len(named) == 1 else found
    if not found:
        found = measured
    if len(found) == 1:
        return found
    if not found:
        names = ", ".join(shown(name, quote=False) for name in free[:10]) or "none is left"
        raise DataError(
            f"{table}: no column looks like a label ({names}): add one with a class or number for "
            "each image, or give it with --label"
        )
    if ask is not None:
        return [ask("Which column holds the labels to learn?", found)]
    names = ", ".join(shown(name, quote=False) for name in found[:10])
    raise DataError(f"{table}: the label could be one of {names}: give it with --label")


def label_values(text: str) -> list[str]:
    """The labels in a cell, several if it has a separator."""
    return [label.strip() for label in LABEL_SEPARATOR.split(text) if label.strip()]


def is_multilabel(cells: Sequence[str]) -> bool:
    """Whether cells have several labels each, separated by ``;`` or ``|``."""
    return any(LABEL_SEPARATOR.search(cell) for cell in cells)


def _no_label(rows: Sequence[Cells], column: str) -> str | None:
    """Why a column cannot be a label; None if it can."""
    cells = [row[column] for row in rows if row[column]]
    if not cells:
        return "the column is empty: fill it in"
    values = {label for cell in cells for label in label_values(cell)}
    if len(values) < 2:
        return f"all images have {shown(cells[0])}, so there is nothing to learn: choose another"
    if not may_be_classes(cells):
        return (
            f"it has {len(values)} different values in {len(cells)} rows, which are no classes: "
            "choose another, or make classes of its values"
        )
    return None


def may_be_classes(cells: Sequence[str]) -> bool:
    """Whether the labels of all images are few enough to be classes."""
    values = {label for cell in cells for label in label_values(cell)}
    most = min(_MAX_CLASSES, max(len(cells) // 2, 2))
    if all(_is_number(value) for value in values):
        most = min(most, _MAX_NUMBERS)
    return len(values) <= most


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
