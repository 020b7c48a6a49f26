"""The images of a folder or table; without a table, the sub-folders are the labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ips.advice.boxes import find_boxes
from ips.advice.columns import Ask, are_groups, split_word
from ips.advice.found import FoundData, FoundRow, Hints, complete_splits
from ips.advice.listing import FileIndex, is_features
from ips.advice.request import check_place
from ips.advice.tables import from_table, table_in
from ips.data.table import NO_GROUP
from ips.errors import DataError

LABEL = "label"  # the task, if sub-folders are the labels
NO_TABLE = "none"  # instead of a column of files


def find_data(place: Path, hints: Hints, *, ask: Ask | None = None) -> FoundData:
    """Find the images and labels of a folder or CSV.

    Args:
        ask: asks the user to choose where the data leaves it open; without it, that is an error.
    """
    check_place(place)
    if place.is_dir():
        table, unreadable = (None, []) if hints.path == NO_TABLE else table_in(place, hints)
        try:
            data = (
                from_table(table, replace(hints, images=hints.images or place), ask)
                if table is not None
                else _from_folders(place, grouped=hints.group != NO_GROUP)
            )
        except DataError:
            if table is None and unreadable:  # it was probably meant
                raise unreadable[0] from None
            raise
        notes = [*data.notes, *(f"ignored {error}" for error in unreadable)]
        if table is not None and len({row.path.parent for row in data.rows}) > 1:
            notes[0] += f"; give --path {NO_TABLE} if the sub-folders are the labels"
        return replace(data, notes=notes)
    return from_table(place, hints, ask)


def _from_folders(folder: Path, *, grouped: bool) -> FoundData:
    """Sub-folders as labels; train, val and test above them as the split.

    Args:
        grouped: whether folders inside those of the labels may be patients or other groups.
    """
    files = FileIndex(folder).files
    if not files:
        raise DataError(
            f"{folder}: there is no image, slide or feature file in it: check the path, and that "
            "the names have endings such as .png"
        )
    features = [path for path in files if is_features(path)]
    files = features if len(features) > len(files) / 2 else [p for p in files if p not in features]
    above = [path.relative_to(folder).parts[:-1] for path in files]
    while above and all(parts for parts in above) and len({parts[0] for parts in above}) == 1:
        above = [parts[1:] for parts in above]  # one folder that holds everything
    splits = [split_word(parts[0]) if parts else None for parts in above]
    words = {split for split, parts in zip(splits, above, strict=True) if parts}
    # A class may be called train, but not beside a folder that is called val or test.
    divided = None not in words or ("train" in words and len(words - {None}) > 1)
    depth = 1 if divided else 0
    inner = [parts[depth + 1] for parts in above if len(parts) > depth + 1]
    grouped = grouped and are_groups(inner)
    rows = [
        FoundRow(
            path,
            {LABEL: parts[depth]},
            group=parts[depth + 1] if grouped and len(parts) > depth + 1 else None,
            split=split if divided else None,
        )
        for path, parts, split in zip(files, above, splits, strict=True)
        if len(parts) > depth and (split is not None or not divided)
    ]
    if len({row.labels[LABEL] for row in rows}) < 2:
        raise DataError(
            f"{folder}: {len(files)} images but no labels: put the images of each class into a "
            "sub-folder of its own, or give a CSV with a column of files and a column of labels"
        )
    notes = ["the sub-folders are the labels" + (", inside those of the splits" * divided)]
    if len(rows) < len(files):
        notes.append(f"{len(files) - len(rows)} images are in no sub-folder, and are left out")
    if grouped:
        kept = "are groups that no split may divide" if divided else "keep their images together"
        notes.append(
            f"the folders inside those, such as {inner[0]}, {kept}; give --group none if they "
            "need not"
        )
    rows, note = complete_splits(rows)
    images = [row.path for row in rows]
    boxes = find_boxes(folder, images=images, root=folder, path=None, tasks=[LABEL])
    notes += [note] if note else []
    return FoundData(rows=rows, tasks=[LABEL], notes=notes, boxes=boxes)
