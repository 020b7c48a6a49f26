"""`ips report`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ips.cli.app import app, err, say, told

if TYPE_CHECKING:
    from ips.config import Config
    from ips.predictor import Predictor
    from ips.report.answers import Answers
    from ips.report.content import Example
    from ips.training.build import Data


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
    from ips.predictor import load
    from ips.report.content import Run, write_report
    from ips.training import RunFolder, build_data

    predictor = load(run)
    target = _target(out or run / "report.html")
    data = build_data(predictor.config)
    answers = _answers(run, predictor.config, data)
    best, worst = answers.ranked(examples)
    looks = _looks(predictor, data, [*best, *worst])
    parameters = sum(p.numel() for p in predictor.net.parameters())
    content = Run(
        name=run.resolve().name,
        config=predictor.config,
        parameters=parameters,
        images=len(data.train),
        log=RunFolder(run).metrics,
        answers=answers,
        best=looks[: len(best)],
        worst=looks[len(best) :],
        readout=predictor.readout_names,
    )
    write_report(target, content)
    say(f"{target}: {target.stat().st_size / 2**20:.1f} MB")


def _target(path: Path) -> Path:
    """Where the page goes, never over a file that is none."""
    from ips.errors import ConfigError

    if path.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"--out {path}: give a file that ends in .html")
    if path.is_dir():
        raise ConfigError(f"--out {path}: that is a folder: give a file that ends in .html")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _answers(run: Path, config: Config, data: Data) -> Answers:
    """As kept beside the model if that is not newer, else from a test."""
    from ips.report.answers import read_answers, write_answers
    from ips.training import RunFolder

    kept = run / "predictions.csv"
    tables = [value for _, value in config.data if isinstance(value, Path) and value.is_file()]
    since = max(path.stat().st_mtime for path in (RunFolder(run).model, *tables))
    if kept.is_file() and kept.stat().st_mtime >= since:
        answers = read_answers(kept, config)
        if answers is not None and len(answers.images) == len(data.test):
            return answers
    answers = _tested(run, config, data)
    write_answers(kept, answers)
    return answers


def _tested(run: Path, config: Config, data: Data) -> Answers:
    """What the model says of every test image, and what is true."""
    import numpy as np

    from ips.models import Output
    from ips.patches import PatchSource
    from ips.report.answers import Answers, TaskAnswers
    from ips.selection import Selection
    from ips.tasks import build_tasks
    from ips.training import evaluate

    tasks = build_tasks(config.tasks)
    images: list[str] = []
    said: dict[str, list[list[float]]] = {name: [] for name in tasks}
    true: dict[str, list[list[bool]]] = {name: [] for name in tasks}

    def see(sources: Sequence[PatchSource], output: Output, selection: Selection) -> None:
        for name, task in tasks.items():
            p = task.activation(output.logits[name].detach().float()).cpu()
            said[name] += task.class_probabilities(p.double()).tolist()
        for source in sources:
            labels = data.test[len(images)][1]
            images.append(source.name)
            for name, task in tasks.items():
                true[name].append(task.one_hot(labels[name]).tolist())

    evaluate(run, console=err, data=data, seen=see)
    parts = [
        TaskAnswers(name, task, np.array(true[name]), np.array(said[name]))
        for name, task in tasks.items()
    ]
    return Answers(images, parts)


def _looks(predictor: Predictor, data: Data, numbers: Sequence[int]) -> list[Example]:
    """Where the model looks on some test images, one in memory at a time."""
    from ips.patches.source import release
    from ips.progress import progress_bar
    from ips.report.content import Example
    from ips.report.pictures import look

    examples = []
    with progress_bar(err, transient=True) as bar:
        line = bar.add_task("looking", total=len(numbers), note="")
        for number in numbers:
            source, _ = data.test[number]
            sight = None
            if len(source.shape) == 3:  # there is no picture of features
                prediction = predictor.predict(
                    source, progress=lambda done: bar.update(line, note=f"{done:,} patches")
                )
                sight = look(source, prediction)
            examples.append(Example(number, sight))
            release(source)
            bar.advance(line)
    return examples
