"""`ips report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ips.cli.app import app, err, say, told


@app.command()
@told
def report(
    run: Annotated[Path, typer.Argument(help="folder of a trained model")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="the page; RUN/report.html by default")
    ] = None,
    examples: Annotated[
        int, typer.Option(min=1, max=20, help="images to show, of the right and of the wrong ones")
    ] = 4,
) -> None:
    """Put a run on one page: scores with intervals, confusions, calibration, best and worst.

    What the model answers to its test images is kept in RUN/predictions.csv, so that another
    report of the same model is quick.
    """
    from ips.report import write_run_report

    path = write_run_report(run, out, examples=examples, console=err)
    say(f"{path}: {path.stat().st_size / 2**20:.1f} MB")
