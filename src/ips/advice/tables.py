"""The images of a table with their labels, patients and splits.

A table is any CSV with a column that names files, also CLAM's ``case_id,slide_id,label`` with its
``splits_0.csv``, and STAMP's clinical table with its slide table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ips.advice.boxes import FoundBoxes, find_boxes
from ips.advice.columns import (
    Ask,
    group_column,
    label_columns,
    path_order,
    repeating_columns,
    split_column,
    split_word,
)
from ips.advice.found import FoundData, FoundRow, Hints, complete_splits
from ips.advice.listing import FileIndex
from ips.advice.neighbours import (
    clam_splits,
    is_clam_splits,
    is_slide_table,
    join_slides,
    read_clam_splits,
    slide_table,
)
from ips.advice.request import check_hints
from ips.advice.targets import label_groups
from ips.data.cells import encoding_note, is_table
from ips.data.objects import is_boxes
from ips.data.table import NO_GROUP, SPLIT_WORDS, is_group_name, read_cells
from ips.errors import DataError, shown
from ips.files import list_files


def table_in(folder: Path, hints: Hints) -> tuple[Path | None, list[DataError]]:
    """The table of a folder that lists its images, if there is one; and why others are ignored."""
    index = FileIndex(hints.images or folder)
    found: dict[Path, bool] = {}  # whether it has labels of its own, unlike STAMP's slide table
    unreadable: list[DataError] = []
    for path in list_files([folder], accept=is_table):
        if is_clam_splits(path):
            continue
        plain = path.suffix.lower() == ".txt"  # a text or list of files, unless it has columns
        try:
            columns, lines = read_cells(path)
        except DataError as error:
            if not plain:
                unreadable.append(error)
            continue
        if plain and (len(columns) < 2 or hints.path not in (None, *columns)):
            continue
        if is_boxes(columns):
            continue
        joined = slide_table(path, columns, hints.slides)
        if joined or _file_column(columns, [cells for _, cells in lines], index, hints.path):
            found[path] = not is_slide_table(columns)
    usable = [path for path, labelled in found.items() if labelled] or list(found)
    if len(usable) > 1:
        names = " and ".join(path.name for path in usable[:3])
        raise DataError(f"{folder}: {names} all list images: give one of them instead")
    return (usable[0] if usable else None), unreadable


@dataclass(frozen=True)
class _Columns:
    """Names of the columns, and the file with CLAM's split; None where there is none."""

    path: str
    group: str | None
    split: str | None
    labels: list[str]
    clam: Path | None
    notes: list[str]


def from_table(table: Path, hints: Hints, ask: Ask | None) -> FoundData:
    """Find the images and labels of a CSV."""
    columns, lines = read_cells(table)
    rows = [dict(cells) for _, cells in lines]
    check_hints(table, columns, hints)
    notes = [note] if (note := encoding_note(table)) else []
    if slides := slide_table(table, columns, hints.slides):
        columns, rows = join_slides(table, columns, rows, slides)
        notes.append(f"{slides.name} names the slides of each patient of {table.name}")
    index = FileIndex(hints.images or table.parent)
    names = _name_columns(table, columns, rows, index, hints, ask)
    for name in (names.path, names.group, names.split, *names.labels):
        if name is not None and columns.count(name) > 1:
            raise DataError(f"{table}: two columns are called {name!r}: rename one")
    notes = [_taken(table, names), *notes, *names.notes]
    files = [index.find(row[names.path]) for row in rows]
    if (missing := files.count(None)) > len(files) / 2:
        raise DataError(
            f"{table}: {missing} of {len(files)} files of column {names.path!r} are not in "
            f"{index.root}: give their folder with --images"
        )
    found, left_out = _labelled(rows, files, names)
    if not found:
        raise DataError(f"{table}: no image has a file and a label: fill in the table")
    if left_out:
        name, reason = next(iter(left_out.items()))
        more = f", and {len(left_out) - 1} more" if len(left_out) > 1 else ""
        notes.append(f"rows of {table.name} that are left out: {name} {reason}{more}")
    settings, boxes = None, None
    complete, note = complete_splits(found)
    cells = {
        row[names.path]: file for row, file in zip(rows, files, strict=True) if file is not None
    }
    if (root := _root(cells)) is not None:
        images = [row.path for row in complete]
        boxes = find_boxes(
            table.parent, images=images, root=root, path=names.path, tasks=names.labels
        )
        if not slides and not names.clam and not note and _is_plain(names, rows, files):
            settings = _settings(table, root, names, columns, boxes)
    return FoundData(
        rows=complete,
        tasks=names.labels,
        settings=settings,
        left_out=left_out,
        notes=[*notes, *([note] if note else [])],
        boxes=boxes,
    )


def _taken(table: Path, names: _Columns) -> str:
    """A sentence about which columns are what."""
    parts = {
        "files": names.path,
        "labels": " and ".join(names.labels),
        "groups": names.group,
        "split": names.clam.name if names.clam else names.split,
    }
    columns = ", ".join(
        f"{part} from {shown(name, quote=False)}" for part, name in parts.items() if name
    )
    lacking = " or ".join(part for part, name in parts.items() if not name)
    return f"{table.name}: {columns}" + (f"; no column of {lacking}" if lacking else "")


def _name_columns(
    table: Path,
    columns: Sequence[str],
    rows: Sequence[Mapping[str, str]],
    index: FileIndex,
    hints: Hints,
    ask: Ask | None,
) -> _Columns:
    path = _file_column(columns, rows, index, hints.path)
    if path is None:
        raise DataError(
            f"{table}: no column names files in {index.root}: give their folder with --images, or "
            "the column with --path"
        )
    others = [column for column in columns if column != path]
    unnamed = [column for column in others if column not in hints.labels]
    group = group_column(table, unnamed, rows, hints.group)
    clam = clam_splits(table, columns, hints.splits)
    split = None if clam else split_column(unnamed, rows)
    taken = (group, split)
    labels = label_columns(table, others, rows, given=hints.labels, taken=taken, ask=ask)
    notes = [f"the split is that of {clam}"] if clam else []
    if group is None and hints.group is None and not clam and not split:
        alike = repeating_columns([column for column in others if column not in labels], rows)
        if len(alike) == 1:
            group = alike[0]
            notes.append(f"images of one {group} stay together; give --group none if they need not")
        elif alike:
            names = " and ".join(alike)
            notes.append(f"images share {names}: if such images are alike, give one with --group")
    return _Columns(path, group, split, labels, clam, notes)


def _labelled(
    rows: Sequence[Mapping[str, str]], files: Sequence[Path | None], names: _Columns
) -> tuple[list[FoundRow], dict[str, str]]:
    """Rows with file, labels and split, and the reason why others are left out."""
    splits = read_clam_splits(names.clam) if names.clam else {}
    tasks = label_groups(names.labels, rows)
    found: dict[Path, FoundRow] = {}
    left_out: dict[str, str] = {}
    unclear: set[Path] = set()  # files with several labels
    for row, file in zip(rows, files, strict=True):
        cell, split = row[names.path], None
        labels = {label: row[label] for label in names.labels}
        empty = not any(all(row[column] for column in task) for task in tasks)
        if names.clam:
            split = splits.get(cell)
        elif names.split:
            split = split_word(row[names.split])
        if not cell:
            left_out["a row"] = f"has no {names.path}"
        elif file is None:
            left_out[cell] = "does not exist"
        elif empty:
            left_out[cell] = f"has no {' and no '.join(names.labels)}"
        elif split is None and names.clam:
            left_out[cell] = f"is not in {names.clam}"
        elif split is None and names.split:
            left_out[cell] = f"has the split {shown(row[names.split])}"
        elif file not in found:
            group = row[names.group] if names.group else None
            found[file] = FoundRow(file, labels, group, split)
        elif found[file].labels == labels:
            left_out[cell] = "is named twice"
        else:
            unclear.add(file)
            left_out[cell] = "has different labels in two rows"
    return [row for file, row in found.items() if file not in unclear], left_out


def _file_column(
    columns: Sequence[str], rows: Sequence[Mapping[str, str]], index: FileIndex, given: str | None
) -> str | None:
    """The column that names most files; None if there are fewer than a file for five rows."""
    if given is not None:
        return given
    sample = rows[:: max(len(rows) // 200, 1)]
    files: dict[str, int] = {}
    ambiguous: list[DataError] = []
    for column in columns:
        found = set()
        for row in sample:
            try:
                found.add(index.find(row[column]))
            except DataError as error:  # which does not matter if another column names files
                ambiguous.append(error)
        files[column] = len(found - {None})
    best = min(columns, key=lambda column: (-files[column], path_order(column)))
    if files[best] > 0.2 * len(sample):
        return best
    if ambiguous:
        raise ambiguous[0]
    return None


def _root(files: Mapping[str, Path]) -> Path | None:
    """The folder that all cells are relative to; None if there is none."""
    roots = set()
    for cell, path in files.items():
        parts = Path(cell).parts
        if path.parts[-len(parts) :] != parts:
            return None
        roots.add(Path(*path.parts[: -len(parts)]) if not Path(cell).is_absolute() else None)
    return roots.pop() or Path() if len(roots) == 1 else None


def _settings(
    table: Path, root: Path, names: _Columns, columns: Sequence[str], boxes: FoundBoxes | None
) -> dict[str, object]:
    """The settings ``data.*`` of a table that can be read as it is."""
    settings: dict[str, object] = {"csv": table, "path": names.path}
    if root != table.parent:
        settings["root"] = root
    known = [c for c in columns if is_group_name(c) and c not in (names.path, *names.labels)]
    if names.group is not None or known:
        settings["group"] = names.group or NO_GROUP
    if boxes is not None:
        settings["objects"] = boxes.table
    return settings


def _is_plain(
    names: _Columns, rows: Sequence[Mapping[str, str]], files: Sequence[Path | None]
) -> bool:
    """Whether `read_table` understands the table as it is, without rows that are left out."""
    known = [file for file in files if file is not None]
    if len(set(known)) < len(known) or not all(row[names.path] for row in rows):
        return False
    if names.group is not None and not all(row[names.group] for row in rows):
        return False
    if names.split is None:
        return True
    words = {row[names.split].lower() for row in rows}
    return names.split.lower() == "split" and words <= SPLIT_WORDS.keys()
