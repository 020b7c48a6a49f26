"""What `ips init` finds: images with their labels, patients and splits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ips.advice.boxes import FoundBoxes


@dataclass(frozen=True, kw_only=True)
class Hints:
    """What the user says about the data, all optional.

    Attributes:
        labels: label columns.
        path: column of the files; none to take sub-folders as labels, whatever tables there are.
        group: column of the patients or other groups; none for no groups.
        images: folder of the files.
        splits: a ``splits_*.csv`` of CLAM.
        slides: slide table of STAMP.
    """

    labels: Sequence[str] = ()
    path: str | None = None
    group: str | None = None
    images: Path | None = None
    splits: Path | None = None
    slides: Path | None = None


@dataclass(frozen=True)
class FoundRow:
    """An image: its file, its labels, and its patient and split where they are known."""

    path: Path
    labels: dict[str, str]
    group: str | None = None
    split: str | None = None


@dataclass(frozen=True, kw_only=True)
class FoundData:
    """Images with their labels, and where they come from.

    Attributes:
        rows: images that exist and have a label.
        tasks: names of the label columns.
        settings: ``data.*`` of a config that reads the user's own table; None if a table must be
            written.
        left_out: file and reason of each row of the user's table that is not among ``rows``.
        notes: sentences about what was found and decided.
        boxes: boxes of objects on the images; None if there are none.
    """

    rows: list[FoundRow]
    tasks: list[str]
    settings: dict[str, object] | None = None
    left_out: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    boxes: FoundBoxes | None = None


def complete_splits(rows: list[FoundRow]) -> tuple[list[FoundRow], str | None]:
    """Rows with test images, or without a split if it has no training images; and a note."""
    words = {row.split for row in rows}
    if words == {None} or {"train", "test"} <= words:
        return rows, None
    if "train" in words and words & {"val", "validation"}:
        renamed = {"val": "test", "validation": "test"}
        made = [replace(row, split=renamed.get(str(row.split), row.split)) for row in rows]
        return made, "there is no test image, so those for validation are the test images"
    without = [replace(row, split=None) for row in rows]
    return without, "the split has no training or no test images, so another one is made"
