"""`ips train` and `ips evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from ips import api
from ips.cli.allocator import keep_freed_memory
from ips.cli.app import app, err, hints, print_message, print_table
from ips.cli.options import Recipe, Resume, RunFolder, Scale, Settings

if TYPE_CHECKING:
    from ips.api import Evaluation


@app.command()
def train(
    recipe: Recipe,
    scale: Annotated[
        Scale | None, Option(help="Scale of a recipe: for a laptop (default), or as in the paper")
    ] = None,
    settings: Settings = None,
    run: Annotated[
        Path | None, Option(metavar="DIR", help="Run folder; runs/RECIPE by default")
    ] = None,
    resume: Resume = False,
    skip_errors: Annotated[
        bool, Option("--skip-errors", help="Train without files of a table that cannot be read")
    ] = False,
) -> None:
    """Train a model, evaluate it on held-out images, and draw its attention maps."""
    keep_freed_memory()
    folder = run or Path("runs") / Path(recipe).stem
    with hints(f"run the same command with --resume to continue (run folder {folder})"):
        api.train(
            recipe,
            scale=scale,
            settings=settings or [],
            run=folder,
            resume=resume,
            skip_errors=skip_errors,
            console=err,
            on_scores=_print_scores,
        )


@app.command()
def evaluate(run: RunFolder) -> None:
    """Score a trained model on its held-out images."""
    _print_scores(api.evaluate(run, console=err))


def _print_scores(evaluation: Evaluation) -> None:
    rows = []
    for task, result in evaluation.results.items():
        for number, score in enumerate(result.scores):
            i = score.interval
            cells = [f"{i.value:.3f}", f"{i.low:.3f} – {i.high:.3f}", f"{score.majority:.3f}"]
            if not i.defined:
                cells = [f"undefined ({score.undefined})", "", ""]
            rows.append(["" if number else task, score.name, *cells])
    print_table(["task", "metric", "test score", "95 % interval", "majority answer"], rows)
    for task, result in evaluation.results.items():
        if result.verdict is not None:
            print_message(f"{task}: {result.verdict}")
    print_message(f"{evaluation.run}: test.json, metrics.csv, model.safetensors, figures/")
