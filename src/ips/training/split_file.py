"""The split of a table in a run folder: which images a model was trained on."""

from __future__ import annotations

import csv
from pathlib import Path

from ips.data.table import write_csv
from ips.errors import RunError
from ips.training.data import Data

_COLUMNS = ("path", "group", "split")


def record_split(path: Path, data: Data) -> None:
    """Write the split of a new run; raise if a resumed run would get another one."""
    if not data.table:
        return
    if not path.is_file():
        write_csv(path, _COLUMNS, data.table)
    elif _splits(path) != {name: split for name, _, split in data.table}:
        raise RunError(
            f"{path}: the table or its split has changed since the run was started: restore it, or "
            "give another --run"
        )


def check_test_images(path: Path, data: Data) -> None:
    """Raise if the model of a run was trained on an image that is now a test image."""
    if not data.table or not path.is_file():
        return
    before = _splits(path)
    known = [n for n, _, split in data.table if split == "test" and before.get(n, "test") != "test"]
    if known:
        raise RunError(
            f"{path}: {len(known)} test images, such as {known[0]}, were used to train this model, "
            "because the table or its split has changed since: restore it, or train again"
        )


def read_split(path: Path) -> list[tuple[str, str, str]]:
    """Path, group (or "") and split of each row of the table of a run."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file, strict=True)
            return [(row["path"], row["group"], row["split"]) for row in rows]
    except (OSError, KeyError, UnicodeDecodeError, csv.Error) as error:
        raise RunError(f"{path}: damaged: restore it, or train the run again") from error


def _splits(path: Path) -> dict[str, str]:
    return {name: split for name, _, split in read_split(path)}
