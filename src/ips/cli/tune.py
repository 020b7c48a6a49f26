"""`ips tune`: search for settings on the validation images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from ips import api
from ips.cli.allocator import keep_freed_memory
from ips.cli.app import app, err, hints, print_message, print_table
from ips.cli.options import Device, Recipe, Scale, Settings

if TYPE_CHECKING:
    from ips.tuning import Trial


@app.command()
def tune(
    recipe: Recipe,
    out: Annotated[
        Path | None, Option(metavar="DIR", help="Folder of the search; runs/tune-RECIPE by default")
    ] = None,
    over: Annotated[
        list[str] | None,
        Option(
            metavar="KEY=VALUES",
            help="Setting to choose, as train.lr=0.0003..0.01 or select.keep=5,10,20; repeatable; "
            "learning rate, M, patch size and encoder by default",
        ),
    ] = None,
    trials: Annotated[
        int, Option(min=1, help="Number of trainings, with those that the folder has already")
    ] = 20,
    hours: Annotated[
        float | None, Option(min=0, help="Hours after which no further training begins")
    ] = None,
    scale: Annotated[
        Scale | None, Option(help="Scale of a recipe; laptop by default, if the recipe has it")
    ] = None,
    settings: Settings = None,
    seed: Annotated[int, Option(min=0, help="Random seed of the search")] = 0,
    device: Device = "auto",
) -> None:
    """Search for settings with the best validation scores, and write the best as a config.

    The same command continues a search that was interrupted. Test images are never used.
    """
    keep_freed_memory()
    folder = out or Path("runs") / f"tune-{Path(recipe).stem}"
    with hints(f"run the same command again to continue (folder {folder})"):
        found = api.tune(
            recipe,
            out=folder,
            over=over or [],
            trials=trials,
            hours=hours,
            scale=scale,
            settings=settings or [],
            seed=seed,
            console=err,
            on_trial=_print_trial,
        )
    if found.best is None:
        print_message("no training has ended yet: give more --hours")
        return
    ranked = sorted(found.trials, key=lambda trial: (trial.score is None, -(trial.score or 0)))
    rows = [[str(t.number), *t.settings.values(), _score(t)] for t in ranked[:10]]
    print_table(["trial", *found.best.settings, "validation score"], rows)
    print_message(f"{folder}: best.yaml (trial {found.best.number}), trials.csv, tune.png")
    print_message(f"train the model with: ips train {folder / 'best.yaml'}")


def _score(trial: Trial) -> str:
    return trial.problem if trial.score is None else f"{trial.score:.3f}"


def _print_trial(trial: Trial) -> None:
    settings = ", ".join(f"{key}={value}" for key, value in trial.settings.items())
    print_message(f"trial {trial.number}: {_score(trial)} with {settings}")
