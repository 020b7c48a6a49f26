"""`ips compare`: trained models on the same test images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from ips import api
from ips.cli.app import app, err, print_message, print_table

if TYPE_CHECKING:
    from ips.statistics import Interval


@app.command()
def compare(
    runs: Annotated[
        list[Path],
        Argument(metavar="RUN", help="Run folders; the first is what the others are compared with"),
    ],
    out: Annotated[
        Path | None, Option(metavar="DIR", help="Folder for comparison.csv and curves.png")
    ] = None,
) -> None:
    """Compare runs on the same test images, with intervals from a paired bootstrap.

    Runs whose settings differ only in their seeds count as trainings of one model.
    """
    found = api.compare(runs, out=out, console=err)
    for task in dict.fromkeys(row.task for row in found.scores):
        rows = [row for row in found.scores if row.task == task]
        columns = [f"{task}: {rows[0].metric}", "trainings", "score", "difference", ""]
        print_table(
            columns,
            [
                (r.arm, str(r.trainings), _shown(r.score), _shown(r.difference, "+"), r.verdict)
                for r in rows
            ],
        )
    for note in found.notes:
        print_message(note)
    if out is not None:
        print_message(f"{out}: comparison.csv, curves.png")


def _shown(found: Interval | None, sign: str = "") -> str:
    if found is None:
        return ""
    if not found.defined:
        return "undefined"
    return f"{found.value:{sign}.3f} ({found.low:{sign}.3f} to {found.high:{sign}.3f})"
