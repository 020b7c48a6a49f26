"""`ips train` and `ips evaluate`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from ips import api
from ips.cli.allocator import keep_freed_memory
from ips.cli.app import app, err, fail, hints, print_message, print_table
from ips.cli.options import Device, Recipe, Resume, RunFolder, Scale, Settings
from ips.errors import ConfigError

if TYPE_CHECKING:
    from ips.api import Evaluation
    from ips.localisation import Localisation
    from ips.task_scores import Score, TaskScores
    from ips.training.folds import FoldScores


@app.command()
def train(
    recipe: Recipe,
    scale: Annotated[
        Scale | None, Option(help="Scale of a recipe; laptop by default, if the recipe has it")
    ] = None,
    settings: Settings = None,
    run: Annotated[
        Path | None, Option(metavar="DIR", help="Run folder; runs/RECIPE by default")
    ] = None,
    resume: Resume = False,
    skip_errors: Annotated[
        bool, Option("--skip-errors", help="Train without files of a table that cannot be read")
    ] = False,
    folds: Annotated[
        int | None, Option(min=2, help="Number of folds of a cross-validation")
    ] = None,
    repeats: Annotated[
        int, Option(min=1, help="Repeat the cross-validation this many times, with new folds")
    ] = 1,
    device: Device = "auto",
) -> None:
    """Train a model, evaluate it on held-out images, and draw its attention maps."""
    if repeats > 1 and folds is None:
        raise ConfigError(f"--repeats {repeats} without --folds: add the number of folds")
    keep_freed_memory()
    folder = run or Path("runs") / Path(recipe).stem
    options: dict[str, Any] = {
        "scale": scale,
        "settings": settings or [],
        "run": folder,
        "resume": resume,
        "skip_errors": skip_errors,
        "console": err,
    }
    with hints(f"run the same command with --resume to continue (run folder {folder})"):
        if folds is None:
            api.train(recipe, **options, on_scores=_print_scores)
        else:
            scores = api.train_folds(
                recipe, **options, folds=folds, repeats=repeats, on_fold=_print_fold
            )
            _print_folds(scores, folder)


@app.command()
def evaluate(
    run: RunFolder,
    data: Annotated[
        Path | None,
        Option(
            metavar="CSV",
            help="Table of other images with the label columns of the training, such as an "
            "external cohort; the run's own test images by default",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        Option(
            metavar="DIR",
            help="Output folder for --data; RUN/evaluations/NAME of the table by default",
        ),
    ] = None,
    devices: Annotated[
        int,
        Option(
            min=1,
            help="Number of GPUs, or of CPU processes without a GPU, for the run's own test images",
        ),
    ] = 1,
    settings: Annotated[
        list[str] | None,
        Option(
            "--set",
            metavar="data.KEY=VALUE",
            help="Score on other drawn images, such as data.digits=data/mnist, without writing the "
            "scores; repeatable",
        ),
    ] = None,
    device: Device = "auto",
) -> None:
    """Score a trained model on its held-out images, or on those of another table.

    With --data, 95 % intervals come from a bootstrap over patients if the table has a column of
    them, otherwise over images. Predictions, scores (JSON), ROC curves and calibration are written
    to a folder, with a page to look at. An image that cannot be read is reported and left out; the
    exit code is then 1. The same command continues after an interruption.
    """
    if data is None:
        if out is not None:
            raise ConfigError(f"--out {out} is for --data: the test images belong to the run")
        from ips.training import Processes

        processes = Processes(devices)
        evaluation = api.evaluate(run, console=err, processes=processes, settings=settings or ())
        if processes.is_first:
            _print_scores(evaluation, stored=not settings)
        return
    if settings:
        raise ConfigError(f"--set {settings[0]} with --data: leave out one of them")
    if devices > 1:
        raise ConfigError(f"--devices {devices} with --data: leave it out, one device predicts")
    from ips.predictions import PURPOSE

    with hints():
        found = api.evaluate_cohort(
            run,
            data,
            out=out,
            console=err,
            on_error=lambda error: print_message(f"ips: {error}"),
        )
    _print_results(found.results)
    for note in found.notes:
        print_message(note)
    print_message(f"intervals: bootstrap over {found.resampled}. {PURPOSE}")
    print_message(f"{found.folder}: predictions.csv, scores.json, report.html")
    if found.failed:
        count = found.images + len(found.failed)
        fail(f"{len(found.failed)} of {count} images could not be predicted")


def _print_fold(name: str, number: int, count: int) -> None:
    print_message(f"{name} ({number} of {count})")


def _print_folds(scores: Mapping[str, FoldScores], run: Path) -> None:
    rows = []
    for task, result in scores.items():
        mean = "undefined"
        if result.mean is not None:
            mean = f"{result.mean:.3f} ± {result.deviation or 0:.3f}"
        name = result.out_of_fold.scores[0].name
        rows.append([task, f"{name}, mean of {len(result.folds)} folds", mean, "", ""])
        for images, found in (("out of fold", result.out_of_fold), ("test", result.test)):
            rows += [["", f"{score.name}, {images}", *_cells(score)] for score in found.scores]
    print_table(["task", "metric, images", "score", "95 % interval", "majority"], rows)
    for task, result in scores.items():
        if result.out_of_fold.verdict is not None:
            print_message(f"{task}, out of fold: {result.out_of_fold.verdict}")
    print_message("out of fold: each image by the model that never saw it; test: by all models")
    print_message(f"{run}: summary.json, out_of_fold.csv, predictions.csv, fold-1/ …")


def _cells(score: Score) -> list[str]:
    """Score, interval and score of the majority answer."""
    i = score.interval
    if not i.defined:
        return [f"undefined ({score.undefined})", "", ""]
    return [f"{i.value:.3f}", f"{i.low:.3f} – {i.high:.3f}", f"{score.majority:.3f}"]


def _print_localisation(results: Mapping[str, Localisation]) -> None:
    from ips.localisation import CAVEAT, notes

    rows = []
    for task, result in results.items():
        for number, (name, i) in enumerate(result.named()):
            cells = [f"{i.value:.3f}", f"{i.low:.3f} – {i.high:.3f}"] if i.defined else ["–", ""]
            rows.append(["" if number else task, name, *cells])
    print_table(["task", "where attention is", "test score", "95 % interval"], rows)
    for text in (*notes(results), CAVEAT):
        print_message(text)


def _print_results(results: Mapping[str, TaskScores]) -> None:
    rows = []
    for task, result in results.items():
        for number, score in enumerate(result.scores):
            rows.append(["" if number else task, score.name, *_cells(score)])
    print_table(["task", "metric", "test score", "95 % interval", "majority answer"], rows)
    for task, result in results.items():
        if result.verdict is not None:
            print_message(f"{task}: {result.verdict}")


def _print_scores(evaluation: Evaluation, *, stored: bool = True) -> None:
    _print_results(evaluation.results)
    if evaluation.localisation:
        _print_localisation(evaluation.localisation)
    if stored:
        print_message(f"{evaluation.run}: test.json, metrics.csv, model.safetensors, figures/")
    else:
        print_message(f"{evaluation.run}: unchanged, since these are not its own test images")
