"""`ips train` and `ips evaluate`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ips.cli.app import app, err, say, show_table, told

if TYPE_CHECKING:
    from ips.config import Config


_GALLERY = 60  # patches of the test set to show


class Scale(StrEnum):
    """Of a recipe."""

    laptop = "laptop"
    paper = "paper"


@app.command()
@told
def train(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE_OR_YAML", help="see `ips recipes`, or your own file")
    ],
    scale: Annotated[
        Scale | None, typer.Option(help="of a recipe: for a laptop (default) or as published")
    ] = None,
    set: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="for instance select.keep=50")
    ] = None,
    run: Annotated[
        Path | None, typer.Option(metavar="DIR", help="where to put it; runs/RECIPE by default")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="go on with the run in that folder, if there is one")
    ] = False,
) -> None:
    """Train a model, test it, and draw where it looked."""
    from ips.config import parse_config
    from ips.explain import Highest
    from ips.recipes import read_recipe, shortened
    from ips.report.figures import collector, draw_run, watcher
    from ips.training import build_data, evaluate
    from ips.training import train as train_run

    values = read_recipe(recipe, scale=scale, settings=set or [])
    config = shortened(parse_config(values, source=recipe), set or [])
    folder = run or Path("runs") / Path(recipe).stem
    data = build_data(config)
    try:
        train_run(
            config, folder, resume=resume, console=err, data=data, watch=watcher(folder, data)
        )
        highest = Highest(_GALLERY)
        scores, net, config = evaluate(folder, console=err, data=data, seen=collector(highest))
        _report(scores, config, folder)
        draw_run(folder, net, config, data, highest)
    except KeyboardInterrupt:
        say(f"\ninterrupted: go on with the same command and --resume (run folder {folder})")
        raise typer.Exit(130) from None


@app.command()
@told
def evaluate(
    run: Annotated[Path, typer.Argument(help="folder of a trained model")],
) -> None:
    """Score a trained model on its held-out images."""
    from ips.training import evaluate as evaluate_run

    scores, _, config = evaluate_run(run, console=err)
    _report(scores, config, run)


def _report(scores: dict[str, float], config: Config, run: Path) -> None:
    from ips.tasks import build_tasks

    tasks = build_tasks(config.tasks)
    rows = [[task, f"{score:.3f}", tasks[task].metric_name] for task, score in scores.items()]
    show_table(["task", "score", "on held-out images"], rows)
    say(f"{run}: test.json, metrics.csv, model.safetensors, figures/")
