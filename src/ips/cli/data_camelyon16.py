"""`ips data camelyon16`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ips.cli.app import say, told
from ips.cli.data import data


@data.command("camelyon16")
@told
def camelyon16(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="with training/ and testing/ in it")
    ],
    features: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="of `ips slides features`: train on these, not on pixels"),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="CSV", help="table to write")] = Path(
        "camelyon16.csv"
    ),
) -> None:
    """Write the table of CAMELYON16 to train on: labels, official split, known mistakes corrected.

    Get the slides from https://camelyon17.grand-challenge.org/Data/.
    """
    from ips.data.camelyon16 import camelyon16_table, write_table

    table = camelyon16_table(folder, features=features)
    write_table(table.slides, out)
    train = sum(slide.split == "train" for slide in table.slides)
    test = len(table.slides) - train
    say(f"{out}: {train:,} slides to train on, {test:,} to test")
    if table.remark is not None:
        say(table.remark)
    if features is not None:
        say(f"train on it with ips train camelyon16 --scale paper --set data.csv={out}")
