"""Mistakes in a call of `ips init` that show before any image is opened, and before torch loads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ips.advice.found import Hints
from ips.config_io import check_keys, override
from ips.data.cells import is_table
from ips.data.table import NO_GROUP, read_cells
from ips.errors import ConfigError, DataError, shown


def check_request(
    place: Path, *, out: Path | None = None, hints: Hints, settings: Sequence[str] = ()
) -> None:
    """Raise if a file, a column or a key of a setting cannot be right.

    Args:
        place, out, hints, settings: see `ips.advice.init.write_config`.
    """
    check_place(place)
    config_file(place, out)
    if place.is_file():
        check_hints(place, read_cells(place)[0], hints)
    minimal = {"data": {"kind": "table", "csv": str(place)}, "tasks": {}}
    check_keys(override(minimal, settings), source="--set")


def check_place(place: Path) -> None:
    """Raise unless ``place`` is a folder or a table."""
    if not place.exists():
        raise DataError(f"{place}: there is no such file or folder: check the path")
    if not place.is_dir() and not is_table(place):
        raise DataError(
            f"{place}: expected a folder of images or a CSV: give the folder that it is in, or "
            "save the table as CSV"
        )


def config_file(place: Path, out: Path | None) -> Path:
    """The YAML file to write, which must be new; by default named like ``place``."""
    out = out or Path(f"{place.resolve().stem}.yaml")
    if out.exists():
        raise ConfigError(f"{out} exists already: remove it, or give another file with --out")
    return out


def check_hints(table: Path, columns: Sequence[str], hints: Hints) -> None:
    """Raise if the user names a column that a table does not have."""
    given = [("--path", hints.path), ("--group", hints.group)]
    for option, name in [*given, *(("--label", name) for name in hints.labels)]:
        if name is not None and name != NO_GROUP and name not in columns:
            known = ", ".join(shown(column, quote=False) for column in columns[:20])
            raise ConfigError(f"{option} {name}: {table} has no such column, only {known}")
