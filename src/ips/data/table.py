"""Your own images as a data set: a CSV of files, labels and, optionally, patients and a split.

    path,grade,patient,split
    slides/017.svs,high,p1,train
    slides/018.svs,low,p2,test

`ips.data.cells` says which kinds of CSV can be read. Files can be images, slides or feature files;
a slide inside a shared feature file is written as ``train.h5::normal_001``.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from ips.data.cells import read_lines
from ips.data.split import Split, divided_groups
from ips.errors import DataError, listed, shown
from ips.files import exists, is_file, joined, split_address, write_text

if TYPE_CHECKING:  # a mistake in a table is reported before torch is imported
    from torch import Tensor

    from ips.data.regions import Objects, Region
    from ips.patches import PatchSource

#: What a column `split` may say.
SPLIT_WORDS: dict[str, Split] = {
    "train": "train",
    "val": "validation",
    "validation": "validation",
    "test": "test",
}

NO_GROUP = "none"
# Columns whose rows belong together, if the config does not name one.
_NUMBER = "[ _-]?(id|no|nr|num|number|code|name)"
_GROUPS = re.compile(
    f"(patient|case|subject|participant|donor|group)({_NUMBER})?"
    f"|(person|animal|mouse){_NUMBER}|pid|mrn",
    re.I,
)
#: Usual names of the path column, the likeliest first.
PATH_NAMES = (
    *("path", "file", "filename", "file_name", "filepath", "file_path"),
    *("image", "image_path", "img", "slide", "slide_id", "image_id"),
)
#: Between several labels in a cell.
LABEL_SEPARATOR = re.compile(r"[;|]")


@dataclass(frozen=True)
class Row:
    """One image: its file, the text of each label column, and its split if there is one.

    ``group`` is what must not be divided by a split, such as a patient; None without such a column.
    ``line`` is the number of its line in the table.
    """

    path: Path
    labels: dict[str, str]
    split: Split | None
    group: str | None = None
    line: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class ScannedTable:
    """A table with all of its mistakes.

    Attributes:
        rows: rows that can be used; their files may be missing.
        errors: one error for every mistake, in the order of the lines.
        missing: rows whose file does not exist.
    """

    rows: list[Row]
    errors: list[DataError]
    missing: list[Row]


def read_table(
    csv_path: str | Path,
    *,
    root: str | Path | None = None,
    path: str = "path",
    tasks: Collection[str],
    group: str | None = None,
    exclude: Sequence[str] = (),
) -> list[Row]:
    """Read the rows of a CSV and check that all columns and files exist.

    Args:
        csv_path: file of the table.
        root: folder that paths are relative to; the folder of the table by default.
        path: name of the column with the files.
        tasks: names of the label columns, and the setting that names each if it is a mapping. A
            column ``split``, in upper or lower case, is optional.
        group: name of the column with patients or other groups; by default ``patient``, ``case_id``
            or the like, if there is one; ``none`` for no groups.
        exclude: files to leave out, relative to ``root`` like those of the column ``path``.
    """
    table = Path(csv_path)
    scanned = scan_table(table, root=root, path=path, tasks=tasks, group=group, exclude=exclude)
    if scanned.errors:
        raise scanned.errors[0]
    if missing := scanned.missing:
        such = ", ".join(shown(str(row.path), quote=False) for row in missing[:2])
        raise DataError(
            f"{table}: {len(missing)} of {len(scanned.rows)} files do not exist, such as "
            f"{such}: paths are relative to {table.parent if root is None else root}, set root if "
            f"the files are elsewhere"
        )
    return scanned.rows


def scan_table(
    table: Path,
    *,
    root: str | Path | None = None,
    path: str = "path",
    tasks: Collection[str],
    group: str | None = None,
    exclude: Sequence[str] = (),
) -> ScannedTable:
    """Read the rows of a CSV and list all mistakes; a table without its columns is an error.

    Args:
        table, root, path, tasks, group, exclude: see `read_table`.
    """
    folder = table.parent if root is None else Path(root)
    columns, lines = read_lines(table)
    if path not in columns:
        raise DataError(_no_path_column(table, path, columns, lines[0][1], folder))
    split_column, group_column = _find_columns(table, columns, path, tasks, group)
    rows: list[Row] = []
    errors: list[DataError] = []
    first_line: dict[Path, int] = {}
    left_out = {joined(folder, name) for name in exclude}
    for line, cells in lines:
        file, split, problem = joined(folder, cells[path]), None, None
        if cells[path] and file in left_out:
            continue
        if split_column:
            split = SPLIT_WORDS.get(cells[split_column].lower())
        if not cells[path]:
            problem = f"line {line}: no file in column {path!r}: fill it in"
        elif split_column and split is None:
            word = shown(cells[split_column])
            problem = f"line {line}: split {word}, expected train, val or test"
        elif file in first_line:
            both = shown(cells[path], quote=False)
            problem = f"lines {first_line[file]} and {line}: both name {both}: keep one"
        elif group_column and not cells[group_column]:
            problem = f"line {line}: nothing in column {group_column!r}: fill it in"
        first_line.setdefault(file, line)
        if problem:
            errors.append(DataError(f"{table}, {problem}"))
            continue
        labels = {task: cells[task] for task in tasks}
        member = cells[group_column] if group_column else None
        rows.append(Row(path=file, labels=labels, split=split, group=member, line=line))
    if not rows and not errors:
        raise DataError(f"{table}: all images are in data.exclude: leave out fewer")
    missing = [row for row in rows if not exists(split_address(row.path)[0])]
    return ScannedTable(rows, errors + _group_errors(table, rows), missing)


def read_cells(
    csv_path: str | Path, required: Sequence[str] = ()
) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """The column names of a CSV, and the cells of each line by column, with its line number.

    Args:
        csv_path: file of the table.
        required: names of columns that must exist.
    """
    columns, lines = read_lines(Path(csv_path))
    _check_columns(Path(csv_path), columns, dict.fromkeys(required), ())
    return columns, lines


def check_columns(
    csv_path: str | Path,
    *,
    root: str | Path | None = None,
    path: str = "path",
    tasks: Collection[str],
    group: str | None = None,
) -> None:
    """Raise if `read_table` would miss a column; files and labels are not checked."""
    table = Path(csv_path)
    columns, lines = read_lines(table)
    if path not in columns:
        folder = table.parent if root is None else Path(root)
        raise DataError(_no_path_column(table, path, columns, lines[0][1], folder))
    _find_columns(table, columns, path, tasks, group)


def _find_columns(
    table: Path, columns: list[str], path: str, tasks: Collection[str], group: str | None
) -> tuple[str, str | None]:
    """The columns with split and group; an empty string or None if there is none."""
    settings = tasks if isinstance(tasks, Mapping) else {task: f"tasks.{task}" for task in tasks}
    keys = {path: "data.path", **settings}
    named = group if group != NO_GROUP else None
    if named is not None:
        keys[named] = "data.group"
    split_column = _check_columns(table, columns, keys, tasks)
    if group is not None:
        return split_column, named
    return split_column, group_column(table, [c for c in columns if c not in (path, *tasks)])


def is_group_name(column: str) -> bool:
    """Whether a column holds patients or other groups, by its name.

    >>> is_group_name("PatientID"), is_group_name("case_no"), is_group_name("patient age")
    (True, True, False)
    """
    return _GROUPS.fullmatch(column) is not None


def group_column(table: Path, columns: Sequence[str]) -> str | None:
    """The column with patients or other groups, by its name; None if there is none."""
    found = [column for column in columns if is_group_name(column)]
    if len(found) > 1:
        raise two_groups(table, found, f"set data.group to one of them, or to {NO_GROUP}")
    return found[0] if found else None


def two_groups(table: Path, columns: Sequence[str], remedy: str) -> DataError:
    """The error about several columns that could all hold the groups."""
    return DataError(
        f"{table}: the columns {' and '.join(columns)} could both say which images belong "
        f"together: {remedy}"
    )


def _group_errors(table: Path, rows: Sequence[Row]) -> list[DataError]:
    """An error if the table's own split divides a group."""
    splits: dict[Hashable, list[str]] = {}
    for row in rows:
        if row.group is not None and row.split is not None:
            splits.setdefault(row.group, []).append(row.split)
    divided = [str(group) for group in divided_groups(splits)]
    if not divided:
        return []
    return [
        DataError(
            f"{table}: its split divides {len(divided)} of {len(splits)} patients or groups "
            f"({listed(divided)}), so scores would be too good: put all images of one "
            f"into one split, remove the column for a random split, or set data.group={NO_GROUP}"
        )
    ]


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table that `read_table` can read."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    write_text(path, text.getvalue())


def _check_columns(
    table: Path, columns: list[str], required: Mapping[str, str | None], tasks: Collection[str]
) -> str:
    """Check that the required columns exist once; return the split column, or an empty string.

    ``required`` has the setting that names each column, or None.
    """
    for column, key in required.items():
        if column not in columns:
            raise DataError(_no_column(table, column, columns, key, _similar(column, columns)))
        if columns.count(column) > 1:
            raise DataError(f"{table}: two columns are called {column!r}: rename one")
    splits = [column for column in columns if column.lower() == "split" and column not in tasks]
    if len(splits) > 1:
        raise DataError(f"{table}: two columns are called {' and '.join(splits)}: rename one")
    return splits[0] if splits else ""


def _no_column(
    table: Path, column: str, columns: Sequence[str], key: str | None, guess: str | None
) -> str:
    """A sentence about a missing column, with the line of the config that names an existing one.

    Args:
        key: the setting that names the column, or the task; None if there is none.
        guess: the column that is probably meant.
    """
    known = shown(", ".join(columns[:20]), quote=False)
    name = shown(guess or "COLUMN", quote=False)
    remedy = f"write {key}: {name}"
    if key is None:
        remedy = f"did you mean {shown(guess)}?" if guess else "add it"
    elif key == f"tasks.{column}":
        remedy = f"write tasks.{name} instead of {key}" if guess else "name a task like its column"
    return f"{table}: no column {shown(column)} among {known}: {remedy}"


def _no_path_column(
    table: Path, path: str, columns: Sequence[str], cells: Mapping[str, str], folder: Path
) -> str:
    """`_no_column` with the column whose first cell is a file, or that is called like one."""
    files = [c for c in columns if cells[c] and is_file(split_address(joined(folder, cells[c]))[0])]
    usual = [column for column in columns if column.lower() in PATH_NAMES]
    similar = _similar(path, columns)
    guesses = [*files, *([similar] if similar else []), *usual]
    return _no_column(table, path, columns, "data.path", guesses[0] if guesses else None)


def _similar(column: str, columns: Sequence[str]) -> str | None:
    lower = {name.lower(): name for name in columns}
    near = get_close_matches(column.lower(), lower, n=1)
    return lower[near[0]] if near else None


class TableData:
    """Rows of a table and their labels as a data set; files are opened on demand."""

    def __init__(
        self,
        rows: Sequence[Row],
        *,
        labels: Sequence[dict[str, Tensor]],
        open: Callable[[Path], PatchSource],
        located: Objects | None = None,
    ) -> None:
        if len(rows) != len(labels):
            raise DataError(f"{len(rows)} rows but {len(labels)} labels: encode the same rows")
        self.rows, self.labels, self.open, self.located = rows, labels, open, located

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[PatchSource, dict[str, Tensor]]:
        return self.open(self.rows[index].path), self.labels[index]

    def objects(self, index: int, task: str) -> list[Region] | None:
        """Regions of the objects that matter for a task; None if they are unknown."""
        if self.located is None:
            return None
        return self.located.regions(self.rows[index].path, task)

    def object_problems(self, index: int, source: PatchSource) -> list[DataError]:
        """An error for each object that cannot be right on the image, which is ``source``."""
        return self.size_problems(index, source.parts[0].size)

    def size_problems(self, index: int, size: tuple[int, int] | None) -> list[DataError]:
        """An error for each object that cannot be right on an image of this size."""
        if self.located is None:
            return []
        return self.located.problems(self.rows[index].path, size)
