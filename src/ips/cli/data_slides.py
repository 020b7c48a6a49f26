"""`ips data tissue-slides`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ips.cli.app import say, told
from ips.cli.data import data, drawing


@data.command("tissue-slides")
@told
def tissue_slides(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="folder to write to")],
    count: Annotated[int, typer.Option(help="slides, every other one with abnormal nuclei")] = 60,
    side: Annotated[int, typer.Option(help="of a slide in pixels, a multiple of 256")] = 4096,
    seed: Annotated[int, typer.Option(help="of what is where")] = 0,
) -> None:
    """Draw slides of stained tissue, half of them with a few abnormal nuclei, and the truth.

    Interrupted, it goes on where it stopped.
    """
    from ips.data.synthetic.tissue_slides import MPP, write_tissue_slides

    with drawing(count, "slides") as progress:
        write_tissue_slides(folder, count=count, side=side, seed=seed, progress=progress)
    say(f"{folder}: {count:,} slides of {side:,} x {side:,} px at {MPP} µm per pixel")
    say(f"find their tissue with: ips slides tissue {folder / 'slides'} --out {folder / 'tissue'}")
