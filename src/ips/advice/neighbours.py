"""The tables of neighbouring tools: CLAM's splits, and STAMP's clinical and slide tables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ips.advice.columns import split_word
from ips.data.cells import is_table
from ips.data.table import is_group_name, read_cells
from ips.errors import DataError
from ips.files import list_files

_CLAM_SPLITS = re.compile(r"splits_(\d+)(_bool|_descriptor)?\.csv")


def is_clam_splits(path: Path) -> bool:
    """Whether a file is one of CLAM's splits, by its name."""
    return _CLAM_SPLITS.fullmatch(path.name) is not None


def clam_splits(table: Path, columns: Sequence[str], given: Path | None) -> Path | None:
    """CLAM's file of the first split, below the folder of its table; None if there is none."""
    if given is not None or "slide_id" not in columns:
        return given
    found: dict[int, Path] = {}
    for path in sorted(table.parent.rglob("splits_*.csv")):
        match = _CLAM_SPLITS.fullmatch(path.name)
        if match and not match[2]:
            found.setdefault(int(match[1]), path)
    return found[min(found)] if found else None


def read_clam_splits(path: Path) -> dict[str, str]:
    """The split of each slide; the columns train, val and test list the slides."""
    columns, lines = read_cells(path)
    known = [column for column in columns if split_word(column)]
    if not known:
        raise DataError(
            f"{path}: expected columns train, val and test that list slides, as CLAM writes them"
        )
    return {
        cells[column]: str(split_word(column))
        for _, cells in lines
        for column in known
        if cells[column]
    }


def is_slide_table(columns: Sequence[str]) -> bool:
    """Whether columns are those of STAMP's slide table, which names the slides of patients."""
    return {"PATIENT", "FILENAME"} <= {column.upper() for column in columns}


def slide_table(table: Path, columns: Sequence[str], given: Path | None) -> Path | None:
    """STAMP's slide table beside a clinical table; None if this is not a clinical table."""
    names = {column.upper() for column in columns}
    if given is not None or "PATIENT" not in names or "FILENAME" in names:
        return given
    beside = list_files([table.parent], accept=is_table)
    found = [p for p in beside if p != table and _names_slides(p)]
    if len(found) > 1:
        raise DataError(f"{found[0]} and {found[1]} both name slides: give one with --slide-table")
    return found[0] if found else None


def _names_slides(path: Path) -> bool:
    try:
        return is_slide_table(read_cells(path)[0])
    except DataError:  # some other file
        return False


def join_slides(
    table: Path, columns: Sequence[str], rows: Sequence[Mapping[str, str]], slides: Path
) -> tuple[list[str], list[dict[str, str]]]:
    """The rows of a slide table, each with the clinical data of its patient."""
    slide_columns, slide_lines = read_cells(slides)
    patient, slide_patient = _patient(columns, table), _patient(slide_columns, slides)
    clinical = {row[patient]: row for row in rows}
    added = [column for column in slide_columns if column not in columns]
    joined = [
        {**clinical[cells[slide_patient]], **{column: cells[column] for column in added}}
        for _, cells in slide_lines
        if cells[slide_patient] in clinical
    ]
    if not joined:
        raise DataError(f"{slides}: no patient of it is in {table}: check the tables")
    return [*columns, *added], joined


def _patient(columns: Sequence[str], table: Path) -> str:
    for column in columns:
        if is_group_name(column):
            return column
    raise DataError(f"{table}: no column `PATIENT` to join the tables by: add it")
