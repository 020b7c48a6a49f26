"""Write a synthetic data set to a folder: images, a CSV of labels, and the settings as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from ips.data.split import Split
from ips.data.table import write_csv
from ips.errors import DataError, because, shown
from ips.files import write_text

Row = tuple[PurePosixPath, Split]
"""Path of an image relative to the folder, and its split."""


def write_folder(
    folder: Path,
    name: str,
    *,
    labels: Mapping[str, Callable[[int], object]],
    rows: Sequence[Row],
    subfolders: Iterable[str],
    settings: dict[str, Any],
    draw: Callable[[int], None],
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Draw the missing images of a folder, then write its CSV.

    Args:
        folder: output folder.
        name: file name of the CSV and of the settings, without suffix.
        labels: label columns of the CSV: a function that returns the label of an image that is
            drawn, given its number.
        rows: all images of the data set.
        subfolders: subfolders to create.
        settings: all settings that the images depend on; it is an error if the folder has others.
        draw: callback that writes the files of one image, given its number. It must write the
            image last: an image that exists counts as complete.
        progress: callback that receives the number of images done and of all images.
    """
    for subfolder in subfolders:
        (folder / subfolder).mkdir(parents=True, exist_ok=True)
    _write_settings(folder / f"{name}.json", settings)
    for number, (path, _) in enumerate(rows):
        if not (folder / path).exists():
            draw(number)
        if progress is not None:
            progress(number + 1, len(rows))
    lines = [
        (path, *(label(number) for label in labels.values()), split)
        for number, (path, split) in enumerate(rows)
    ]
    write_csv(folder / f"{name}.csv", ["path", *labels, "split"], lines)


def _write_settings(path: Path, settings: dict[str, Any]) -> None:
    """Write the settings, or compare them with those of the existing file."""
    if not path.exists():
        write_text(path, json.dumps(settings))
        return
    try:
        stored = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        reason = because(error, remedy="choose another folder")
        raise DataError(f"{path} cannot be read {reason}") from error
    if stored != settings:
        raise DataError(
            f"{path.parent} holds images drawn with {shown(stored)} (in {path.name}), not "
            f"{shown(settings)}: choose another folder"
        )
