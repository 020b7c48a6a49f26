"""`ips data tissue-slides`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ips.cli.app import err, say, told
from ips.cli.data import data


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
    from ips.data.tissue_slides import MPP, write_tissue_slides
    from ips.progress import progress_bar

    with progress_bar(err) as bar:
        task = bar.add_task("drawing", total=count, note="slides")
        try:
            write_tissue_slides(
                folder,
                count=count,
                side=side,
                seed=seed,
                progress=lambda done, total: bar.update(task, completed=done, total=total),
            )
        except KeyboardInterrupt:
            raise KeyboardInterrupt("the same command goes on where this stopped") from None
    say(f"{folder}: {count:,} slides of {side:,} x {side:,} px at {MPP} µm per pixel")
    say(f"find their tissue with: ips slides tissue {folder / 'slides'} --out {folder / 'tissue'}")
