"""A run on one page: what was trained, how it learnt, what it answers, and where it is wrong.

One HTML file that needs nothing else; no script runs in it.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ips._version import __version__
from ips.config import Config, describe
from ips.errors import RunError
from ips.explain.page import shortened
from ips.report.answers import Answers, TaskAnswers
from ips.report.charts import COLOURS, Line, curves, interval_bar
from ips.report.facts import costs, data_name, facts
from ips.report.html import Html, el, join, page, section, table
from ips.report.pictures import Sight, draw_crops, draw_sight, legend, palette_of
from ips.report.statistics import Floats
from ips.report.tasks import measures, tasks_details

_SCORE = "train_"  # columns of the log with the scores of tasks begin so


@dataclass(frozen=True)
class Example:
    """An image to show: its number among the test images, and its picture if it has pixels."""

    number: int
    sight: Sight | None


@dataclass(frozen=True)
class Run:
    """What is reported.

    Attributes:
        name: of the run.
        config: it was trained with.
        parameters: numbers that the model learnt.
        images: it was trained on.
        log: its ``metrics.csv``.
        answers: to the test images.
        best, worst: images answered rightly and wrongly, as ``Answers.ranked`` has them.
        readout: what the classes of patches are called; None for a model without a read-out.
    """

    name: str
    config: Config
    parameters: int
    images: int
    log: Path
    answers: Answers
    best: Sequence[Example]
    worst: Sequence[Example]
    readout: Sequence[str] | None


def write_report(path: Path, run: Run) -> None:
    """Write the page; it appears whole or not at all."""
    log, count = _read_log(run.log), len(run.answers.images)
    parts = {
        "scores": ("Scores", _scores(run)),
        "trained": (
            "What was trained",
            facts(run.config, parameters=run.parameters, train=run.images, test=count),
        ),
        "learning": ("How it learnt", _learning(log)),
        "tasks": ("Task by task", tasks_details(run.answers.tasks)),
        "examples": ("Right and wrong", _examples(run)),
        "costs": ("Time and memory", costs(log, images=run.images)),
        "settings": ("Every setting", _settings(run.config)),
    }
    links = [el("li", el("a", title, href=f"#{name}")) for name, (title, _) in parts.items()]
    header = el(
        "header",
        el("h1", run.name),
        el(
            "p",
            f"{run.config.method} on {data_name(run.config)}, tested on {_images(count)}",
            class_="lead",
        ),
        el("nav", el("ul", *links), aria_label="Parts of this report"),
    )
    main = el("main", *(section(name, *content) for name, content in parts.items()))
    footer = el("footer", f"Written by ips {__version__}.")
    text = page(f"{run.name}: report", [header, main, footer])
    partial = path.with_suffix(".partial")
    # the name of a file need not be text
    partial.write_text(text, encoding="utf-8", errors="replace")
    partial.replace(path)


def _images(count: int) -> str:
    return "1 image" if count == 1 else f"{count:,} images"


def _scores(run: Run) -> Html:
    rows = []
    for task in run.answers.tasks:
        asked = run.config.tasks[task.name].metric
        for number, measure in enumerate(measures(task, first=asked)):
            score = measure.score
            between = f"{score.low:.3f} – {score.high:.3f}" if score.known else "–"
            value = f"{score.value:.3f}" if score.known else "–"
            shown = el("strong", value) if number == 0 else value
            base = f"{measure.baseline:.3f}"
            rows.append([task.name, measure.name, shown, between, interval_bar(score), base])
    columns = ["task", "measure", "score", "95 % interval", "from 0 to 1", "without looking"]
    caption = f"On {_images(len(run.answers.images))} that the model has not seen"
    note = (
        "Intervals say how far the score may be off because there are only so many test images: "
        "Wilson's for shares of images, DeLong's for the AUC, and from the spread between images "
        "for shares of labels. They do not cover what another seed of the training would change. "
        "Without looking: always the commonest answer."
    )
    return join([table(caption, columns, rows, class_="scores"), el("p", note, class_="note")])


def _settings(config: Config) -> Html:
    return el("details", el("summary", "config.yaml"), el("pre", describe(config)))


def _learning(log: dict[str, Floats]) -> Html:
    if not log:
        return el("p", "The run folder holds no log of its training.")
    epoch = log["epoch"]
    tasks = {k.removeprefix(_SCORE): v for k, v in log.items() if k.startswith(_SCORE)}
    lines = [Line(task, epoch, values) for task, values in tasks.items()]
    left = el(
        "figure",
        el("figcaption", "Training loss"),
        curves([Line("loss", epoch, log["loss"])], name="Training loss"),
    )
    right = el(
        "figure",
        el("figcaption", "Score on the training images"),
        curves(lines, name="Score on the training images", unit=True),
        el("ul", *(_key(i, line) for i, line in enumerate(lines)), class_="legend"),
    )
    return el("div", left, right, class_="charts")


def _key(number: int, line: Line) -> Html:
    stroke = el("line", x1=0, x2=12, y1=6, y2=6, class_=f"line c{number % COLOURS}")
    key = el("svg", stroke, view_box="0 0 12 12", aria_hidden="true", class_="key")
    return el("li", key, f"{line.name} {line.y[-1]:.3f}")


def _examples(run: Run) -> Html:
    sights = [e.sight for e in (*run.best, *run.worst) if e.sight is not None]
    palette = palette_of(sights)
    parts: list[Html] = []
    if sights and palette:
        note = (
            "The patches kept, tinted by the class that is seen in them, stronger where the model "
            "paid more attention; below them the four strongest with their share of the attention."
        )
        parts = [el("p", note, class_="note"), legend(palette, run.readout)]
    elif sights:
        note = (
            "The patches kept, from dark blue to yellow as the model paid more attention; below "
            "them the four strongest with their share of it."
        )
        parts = [el("p", note, class_="note")]
    elif run.best or run.worst:
        note = "The data are stored features, without pixels: there is no picture to draw them on."
        parts = [el("p", note, class_="note")]

    def cards(examples: Sequence[Example]) -> Html:
        made = (_card(example, run, palette) for example in examples)
        return el("div", *made, class_="cards")

    several = len(run.answers.tasks) > 1
    parts.append(el("h3", "Right in every task" if several else "Right"))
    none = "No image was answered right" + (" in every task." if several else ".")
    parts.append(cards(run.best) if run.best else el("p", none))
    parts.append(el("h3", "Wrong in at least one task" if several else "Wrong"))
    parts.append(cards(run.worst) if run.worst else el("p", "No image was answered wrong."))
    return join(parts)


def _card(example: Example, run: Run, palette: dict[int, tuple[float, float, float]]) -> Html:
    name, sight = run.answers.images[example.number], example.sight
    parts = [el("h4", name)]
    if sight is not None:
        kept = f"{sight.kept:,} of {sight.patches:,} patches kept"
        parts += [
            draw_sight(sight, palette, name=name),
            draw_crops(sight, palette, run.readout),
            el("p", kept, class_="note"),
        ]
    head = el("tr", *(el("th", word, scope="col") for word in ("task", "answered", "true")))
    rows = [_answer(task, example.number) for task in run.answers.tasks]
    parts.append(el("table", el("thead", head), el("tbody", *rows)))
    return el("article", *parts, class_="card")


def _answer(task: TaskAnswers, number: int) -> Html:
    def words(chosen: Sequence[bool]) -> str:
        names = [name for name, there in zip(task.classes, chosen, strict=True) if there]
        return shortened(", ".join(names), 80) or "none"

    answered, right = task.answered[number], bool(task.right[number])
    said = words(answered.tolist())
    if task.kind != "multilabel":
        said += f" ({task.probabilities[number].max():.2f})"
    mark = el("span", f"{'✓' if right else '✗'} {said}", class_="right" if right else "wrong")
    true = words(task.truth[number].tolist())
    return el("tr", el("th", task.name, scope="row"), el("td", mark), el("td", true))


def _read_log(path: Path) -> dict[str, Floats]:
    """The columns of ``metrics.csv``, nan where a value is missing; nothing if it is not there."""
    if not path.is_file():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        return {}
    if missing := {"epoch", "loss"} - set(rows[0]):
        raise RunError(f"{path}: has no column {', '.join(sorted(missing))}: it is not a run's log")
    try:
        return {k: np.array([float(row[k] or "nan") for row in rows]) for k in rows[0]}
    except (TypeError, ValueError) as error:
        raise RunError(f"{path}: a value in it is no number ({error})") from error
