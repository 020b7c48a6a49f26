"""`init` and `check`: from a person's own images to a config that trains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ips.errors import DataError

if TYPE_CHECKING:
    from rich.console import Console

    from ips.advice.init import NewConfig
    from ips.advice.problems import Report

AnyPath = str | Path


def init(
    place: AnyPath,
    *,
    out: AnyPath | None = None,
    labels: Sequence[str] = (),
    path: str | None = None,
    group: str | None = None,
    images: AnyPath | None = None,
    splits: AnyPath | None = None,
    slide_table: AnyPath | None = None,
    object_size: int | None = None,
    minutes: float = 30,
    settings: Sequence[str] = (),
    ask: Callable[[str, Sequence[str]], str] | None = None,
    console: Console | None = None,
) -> NewConfig:
    """Look at images and their labels, and write a config with a reason for each value.

    Args:
        place: folder of images, slides or feature files, or a CSV that lists them.
        out: YAML file to write; by default named like ``place``, in the current folder.
        labels: columns with the labels; by default the only column that can be one.
        path: column with the files; by default the one that names most of them.
        group: column of patients or other groups; by default by its name; ``none`` for no groups.
        images: folder of the files; by default that of the CSV.
        splits: a ``splits_*.csv`` of CLAM; by default the first one below the folder of the CSV.
        slide_table: slide table of STAMP, if the CSV is its clinical table.
        object_size: usual size in pixels of what matters in an image.
        minutes: time that the training may take on this machine.
        ask: asks the user to choose a name where the data leaves it open; by default an error.
    """
    from ips.advice.found import Hints
    from ips.advice.request import check_request

    hints = Hints(
        labels=labels,
        path=path,
        group=group,
        images=None if images is None else Path(images),
        splits=None if splits is None else Path(splits),
        slides=None if slide_table is None else Path(slide_table),
    )
    file = None if out is None else Path(out)
    check_request(Path(place), out=file, hints=hints, settings=settings)

    # imported now, so that a mistake is reported at once
    from ips.advice.init import write_config

    return write_config(
        Path(place),
        out=file,
        hints=hints,
        object_size=object_size,
        minutes=minutes,
        settings=settings,
        ask=ask,
        console=console,
    )


def check(
    config: AnyPath, *, settings: Sequence[str] = (), console: Console | None = None
) -> Report:
    """Open every file of a config once, and report all problems of files, labels and splits.

    Args:
        config: YAML file, or name of a recipe.
    """
    from ips.advice.problems import Report
    from ips.api import read_config
    from ips.progress import progress_bar

    report = Report()
    try:
        parsed = read_config(str(config), None, settings)
    except DataError as error:  # not the table that the config describes
        report.add("error", error)
        return report

    # imported now, so that a mistake is reported at once
    from ips.advice.check import check_config

    return check_config(parsed, progress_bar(console, transient=True))
