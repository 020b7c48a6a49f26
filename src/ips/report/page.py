"""The page of a report: one HTML file with its style and pictures inside, and no scripts."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.colors import to_hex

from ips._version import __version__
from ips.config import Config
from ips.config_io import describe
from ips.explain.colours import ink_on, rgb, shortened
from ips.files import atomic_write
from ips.report.charts import COLOURS, epoch_chart, tick_texts
from ips.report.examples import Picture, class_name, class_palette, draw
from ips.report.facts import costs, counted, data_name, setup
from ips.report.log import read_log, training_scores
from ips.report.predictions import TaskPredictions, TestPredictions
from ips.report.results import task_results, task_scores
from ips.report.statistics import Floats


@dataclass(frozen=True)
class Example:
    """A test image to show: its number, and its picture unless it consists of features."""

    number: int
    picture: Picture | None


@dataclass(frozen=True)
class ReportContent:
    """What a report shows.

    Attributes:
        name: name of the run.
        config: configuration of the run.
        model: description of the model, see `ips.models.Net.describe`.
        parameters: number of trainable parameters.
        train_images: number of training images.
        log: path of ``metrics.csv``.
        predictions: predictions for the test images.
        best: examples of correct images.
        worst: examples of wrong images.
        patch_classes: names of the classes of patches; None without a patch read-out.
    """

    name: str
    config: Config
    model: Mapping[str, str]
    parameters: int
    train_images: int
    log: Path
    predictions: TestPredictions
    best: Sequence[Example]
    worst: Sequence[Example]
    patch_classes: Sequence[str] | None


def write_page(path: Path, content: ReportContent) -> None:
    """Write the page of a report, atomically."""
    config, tasks = content.config, content.predictions.tasks
    log, count = read_log(content.log), len(content.predictions.images)
    css = files("ips.report").joinpath("templates/report.css").read_text(encoding="utf-8")
    metrics = {name: task.metric for name, task in config.tasks.items()}
    values = {
        "name": content.name,
        "method": config.method,
        "data": data_name(config),
        "images": count,
        "scores": [(task.name, task_scores(task, first=metrics[task.name])) for task in tasks],
        "setup": setup(
            config,
            model=content.model,
            parameters=content.parameters,
            train=content.train_images,
            test=count,
        ),
        "learning": _learning(log),
        "results": [task_results(task) for task in tasks],
        "costs": costs(log, images=content.train_images),
        "settings": describe(config),
        "version": __version__,
        "css": Markup(css),
        "css_hash": base64.b64encode(hashlib.sha256(css.encode()).digest()).decode(),
    }
    page = _environment().get_template("report.html.j2").render(values | _examples(content))
    with atomic_write(path) as stream:
        # A file name may hold bytes that are not valid Unicode.
        stream.write(page.encode("utf-8", errors="replace"))


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("ips.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "counted": counted,
        "num": lambda value: f"{value:.5g}",
        "shortened": shortened,
        "tick_texts": tick_texts,
        "shade": lambda share: f"s{max(1, round(8 * share))}" if share else "z",
        "ink": lambda colour: ink_on(rgb(colour)),
    }
    return environment


def _learning(log: dict[str, Floats]) -> dict[str, Any] | None:
    if not log:
        return None
    scores, loss = training_scores(log), {"loss": log["loss"]}
    return {
        "loss": epoch_chart(log["epoch"], loss, name="Training loss", unit=False),
        "scores": epoch_chart(log["epoch"], scores, name="Training score", unit=True),
        "legend": [
            (f"line c{i % COLOURS}", f"{task} {values[-1]:.3f}")
            for i, (task, values) in enumerate(scores.items())
        ],
    }


def _examples(content: ReportContent) -> dict[str, Any]:
    pictures = [e.picture for e in (*content.best, *content.worst) if e.picture is not None]
    palette = class_palette(pictures)

    def cards(examples: Sequence[Example]) -> list[dict[str, Any]]:
        return [
            {
                "name": content.predictions.images[example.number],
                "drawing": None
                if example.picture is None
                else draw(example.picture, palette, content.patch_classes),
                "rows": [_row(task, example.number) for task in content.predictions.tasks],
            }
            for example in examples
        ]

    return {
        "best": cards(content.best),
        "worst": cards(content.worst),
        "has_pictures": bool(pictures),
        "legend": [
            (to_hex(colour), class_name(content.patch_classes, label))
            for label, colour in palette.items()
        ],
    }


def _row(task: TaskPredictions, number: int) -> dict[str, Any]:
    def names(chosen: Sequence[bool]) -> str:
        found = [name for name, here in zip(task.classes, chosen, strict=True) if here]
        return shortened(", ".join(found), 80) or "none"

    predicted = names(task.predicted[number].tolist())
    if task.kind != "multilabel":
        predicted += f" ({task.probabilities[number].max():.2f})"
    return {
        "task": task.name,
        "correct": bool(task.correct[number]),
        "predicted": predicted,
        "label": names(task.labels[number].tolist()),
    }
