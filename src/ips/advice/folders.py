"""The images of a folder or table; without a table, the sub-folders are the labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ips.advice.columns import Ask, split_word
from ips.advice.found import FoundData, FoundRow, Hints, complete_splits
from ips.advice.listing import FileIndex, is_features
from ips.advice.neighbours import TABLES
from ips.advice.tables import from_table, table_in
from ips.errors import DataError

LABEL = "label"  # the task, if sub-folders are the labels


def find_data(place: Path, hints: Hints, *, ask: Ask | None = None) -> FoundData:
    """Find the images and labels of a folder or CSV.

    Args:
        ask: asks the user to choose where the data leaves it open; without it, that is an error.
    """
    if not place.exists():
        raise DataError(f"{place}: there is no such file or folder: check the path")
    if place.is_dir():
        table = table_in(place, hints)
        if table is None:
            return _from_folders(place)
        return from_table(table, replace(hints, images=hints.images or place), ask)
    if place.suffix.lower() not in TABLES:
        raise DataError(
            f"{place}: expected a folder of images or a CSV: give the folder that it is in, or "
            "save the table as CSV"
        )
    return from_table(place, hints, ask)


def _from_folders(folder: Path) -> FoundData:
    """Sub-folders as labels; train, val and test above them as the split."""
    files = FileIndex(folder).files
    if not files:
        raise DataError(f"{folder}: there is no image, slide or feature file in it")
    features = [path for path in files if is_features(path)]
    files = features if len(features) > len(files) / 2 else [p for p in files if p not in features]
    above = [path.relative_to(folder).parts[:-1] for path in files]
    while above and all(parts for parts in above) and len({parts[0] for parts in above}) == 1:
        above = [parts[1:] for parts in above]  # one folder that holds everything
    splits = [split_word(parts[0]) if parts else None for parts in above]
    divided = all(splits)
    depth = 1 if divided else 0
    labels = [parts[depth] if len(parts) > depth else None for parts in above]
    rows = [
        FoundRow(path, {LABEL: label}, split=split if divided else None)
        for path, label, split in zip(files, labels, splits, strict=True)
        if label is not None
    ]
    if len({row.labels[LABEL] for row in rows}) < 2:
        raise DataError(
            f"{folder}: {len(files)} images but no labels: put the images of each class into a "
            "sub-folder of its own, or give a CSV with a column of files and a column of labels"
        )
    notes = ["the sub-folders are the labels" + (", inside those of the splits" * divided)]
    if len(rows) < len(files):
        notes.append(f"{len(files) - len(rows)} images are in no sub-folder, and are left out")
    rows, note = complete_splits(rows)
    return FoundData(rows=rows, tasks=[LABEL], notes=[*notes, *([note] if note else [])])
