"""Compare trained models on the same test images: scores, differences, and curves.

Runs whose settings differ only in their seeds are trainings of one arm. Intervals come from a
bootstrap that draws test images and, where an arm has several, its trainings. All arms get the same
images in a draw, so that differences are paired.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from ips.config import Config
from ips.errors import ConfigError, DataError, listed
from ips.explain.colours import PALETTE, shortened
from ips.explain.figures.page import Page, style_epoch_axes
from ips.files import write_text
from ips.loading import load
from ips.predictions import TaskPredictions, TestPredictions
from ips.report.curves import read_log, scores_on
from ips.report.run_report import stored_predictions
from ips.statistics import Floats, Interval
from ips.task_scores import VALUES, task_scores
from ips.training import RunFolder, build_data

_DRAWS = 1000
_SEEDS = ("train.seed", "data.seed")


@dataclass(frozen=True)
class Arm:
    """Trainings that differ only in their seeds.

    Attributes:
        name: settings that differ from those of the first arm, or the name of its run folder.
        runs: run folders.
        seeds: seed of each training.
        predictions: predictions of each for the test images.
    """

    name: str
    runs: tuple[Path, ...]
    seeds: tuple[int, ...]
    predictions: tuple[TestPredictions, ...]


@dataclass(frozen=True)
class ArmScore:
    """A score of an arm, the mean over its trainings.

    Attributes:
        arm: name of the arm.
        trainings: how many.
        task, metric: what is scored, and how.
        score: the score with its interval.
        difference: from the first arm, with its interval; None for the first.
    """

    arm: str
    trainings: int
    task: str
    metric: str
    score: Interval
    difference: Interval | None

    @property
    def verdict(self) -> str:
        """Whether the difference is clear."""
        if self.difference is None:
            return ""
        if not self.difference.defined:
            return "undefined"
        if self.difference.low > 0:
            return "higher"
        return "lower" if self.difference.high < 0 else "not clear"


@dataclass(frozen=True)
class Comparison:
    """The scores of all arms and tasks, and what to know about them."""

    scores: list[ArmScore]
    notes: list[str]


def compare(
    runs: Sequence[Path], *, out: Path | None = None, console: Console | None = None
) -> Comparison:
    """Compare runs with the same test images.

    Args:
        runs: run folders; the first belongs to the arm that the others are compared with.
        out: folder for ``comparison.csv`` and ``curves.png``; None to write nothing.
        console: console for progress bars of runs whose test images are predicted first.
    """
    known: set[Path] = set()
    for run in runs:
        if run.resolve() in known:
            raise ConfigError(f"{run}: given twice: name every run once")
        known.add(run.resolve())
    arms = read_arms(runs, console=console)
    check_images(arms)
    notes = [f"{arm.name}: one training, so its seed is not accounted for" for arm in _single(arms)]
    tasks = range(len(arms[0].predictions[0].tasks))
    comparison = Comparison([row for task in tasks for row in _scores(arms, task)], notes)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_text(out / "comparison.csv", _csv(comparison.scores))
        draw_curves(arms, out / "curves.png")
    return comparison


def read_arms(runs: Sequence[Path], *, console: Console | None = None) -> list[Arm]:
    """The arms that runs belong to, in the order of their first runs."""
    found: dict[str, list[tuple[Path, Config, TestPredictions]]] = {}
    for run in runs:
        predictor = load(run)
        config = predictor.config
        predictions = stored_predictions(run, predictor, build_data(config), console)
        settings = _flat(config.model_dump(mode="json"))
        key = json.dumps({k: v for k, v in settings.items() if k not in _SEEDS}, sort_keys=True)
        found.setdefault(key, []).append((run, config, predictions))
    first = json.loads(next(iter(found)))
    arms = []
    for key, members in found.items():
        folders, configs, predictions_ = zip(*members, strict=True)
        changed = [f"{k}={v}" for k, v in json.loads(key).items() if first.get(k) != v]
        name = ", ".join(changed) or str(folders[0])
        arms.append(
            Arm(shortened(name, 60), folders, tuple(c.train.seed for c in configs), predictions_)
        )
    return arms


def check_images(arms: Sequence[Arm]) -> None:
    """Raise unless all runs were tested on the same images with the same tasks and labels."""
    reference, name = arms[0].predictions[0], arms[0].runs[0]
    for arm in arms:
        for run, other in zip(arm.runs, arm.predictions, strict=True):
            remedy = "compare runs of one data set with one split (data.seed)"
            if [task.name for task in other.tasks] != [task.name for task in reference.tasks]:
                raise DataError(f"{run}: has other tasks than {name}: {remedy}")
            pairs = zip(other.images, reference.images, strict=False)
            different = [a for a, b in pairs if a != b]
            if different or len(other.images) != len(reference.images):
                such = f", such as {listed(different, most=1)}" if different else ""
                raise DataError(f"{run}: has other test images than {name}{such}: {remedy}")
            for a, b in zip(other.tasks, reference.tasks, strict=True):
                if not np.array_equal(a.labels[a.has_label], b.labels[b.has_label]):
                    raise DataError(f"{run}: has other labels of {a.name} than {name}: {remedy}")


def _single(arms: Sequence[Arm]) -> list[Arm]:
    return [arm for arm in arms if len(arm.runs) == 1]


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by their dotted names."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def _scores(arms: Sequence[Arm], number: int) -> Iterator[ArmScore]:
    """The main score of a task for every arm."""
    tasks = [[p.tasks[number].labelled() for p in arm.predictions] for arm in arms]
    metric = task_scores(tasks[0][0]).scores[0].key
    values, draws = _bootstrap(tasks, metric, same_seeds=len({arm.seeds for arm in arms}) == 1)
    for i, arm in enumerate(arms):
        difference = None
        if i:
            difference = _interval(values[i] - values[0], draws[:, i] - draws[:, 0])
        score = _interval(values[i], draws[:, i])
        yield ArmScore(arm.name, len(arm.runs), tasks[0][0].name, metric, score, difference)


def _bootstrap(
    tasks: Sequence[Sequence[TaskPredictions]], metric: str, *, same_seeds: bool
) -> tuple[Floats, Floats]:
    """The mean score of each arm ``(A,)``, and those of every draw ``(draws, A)``."""
    value, rng = VALUES[metric], np.random.default_rng(0)
    count = len(tasks[0][0].labels)

    def all_scores(rows: Any) -> list[Floats]:
        return [np.array([value(task.rows(rows)) for task in arm]) for arm in tasks]

    means = np.array([found.mean() for found in all_scores(np.arange(count))])
    draws = np.empty((_DRAWS, len(tasks)))
    for draw in draws:
        found = all_scores(rng.integers(count, size=count))
        chosen = [rng.integers(len(arm), size=len(arm)) for arm in tasks]
        for i, scores in enumerate(found):  # trainings with the same seeds are paired
            draw[i] = scores[chosen[0] if same_seeds else chosen[i]].mean()
    return means, draws


def _interval(value: float, draws: Floats) -> Interval:
    known = draws[np.isfinite(draws)]
    if not np.isfinite(value) or not len(known):
        return Interval(np.nan, np.nan, np.nan)
    low, high = np.quantile(known, [0.025, 0.975])
    return Interval(float(value), min(float(low), float(value)), max(float(high), float(value)))


def _csv(scores: Sequence[ArmScore]) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    columns = ["score", "low", "high", "difference", "difference_low", "difference_high"]
    writer.writerow(["arm", "trainings", "task", "metric", *columns])
    for row in scores:
        both = [row.score, row.difference or Interval(np.nan, np.nan, np.nan)]
        numbers = [n for found in both for n in (found.value, found.low, found.high)]
        cells = ["" if np.isnan(n) else f"{n:.6g}" for n in numbers]
        writer.writerow([row.arm, row.trainings, row.task, row.metric, *cells])
    return text.getvalue()


def draw_curves(arms: Sequence[Arm], path: Path) -> None:
    """Draw the scores by epoch of all trainings, a panel for each task and a colour for each arm.

    On validation images if there are any, otherwise on training images.
    """
    logs = [[read_log(RunFolder(run).metrics) for run in arm.runs] for arm in arms]
    curves = [
        [scores_on("validation", log) or scores_on("train", log) for log in arm] for arm in logs
    ]
    names = [task.name for task in arms[0].predictions[0].tasks]
    page = Page(4.6 * len(names) + 0.4, 3.4 + 0.22 * len(arms))
    for panel, task in enumerate(names):
        axes = page.axes(0.6 + 4.6 * panel, 0.5, 3.8, 2.4)
        epochs = [log["epoch"] for arm in logs for log in arm if log]
        if not epochs:
            continue
        style_epoch_axes(axes, f"Score of {shortened(task, 30)}", max(epochs, key=len))
        for i, trainings in enumerate(curves):
            for log, found in zip(logs[i], trainings, strict=True):
                if task in found:
                    colour = PALETTE[i % len(PALETTE)]
                    axes.plot(log["epoch"], found[task], color=colour, lw=1.4, alpha=0.85)
    for i, arm in enumerate(arms):
        colour = PALETTE[i % len(PALETTE)]
        page.write(0.6, 3.35 + 0.22 * i, arm.name, size=9, weight="bold", color=colour)
    page.save(path)
