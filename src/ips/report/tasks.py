"""What a report says of one task: its scores, what is taken for what, and how sure is how right.

Letters: n images, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ips.explain.page import shortened
from ips.report.answers import TaskAnswers
from ips.report.charts import reliability_chart, roc_chart
from ips.report.html import Html, el, join, scrolling, table
from ips.report.statistics import (
    Counts,
    Interval,
    auc,
    calibration,
    confusion,
    label_counts,
    mean_share,
    roc,
    wilson,
)

_CLASSES = 40  # more than these do not make a matrix that can be read
_PAIRS = 20  # of classes that are confused most, shown instead


@dataclass(frozen=True)
class Measure:
    """A score, by the name that a config has for it and what it would be without looking."""

    key: str
    name: str
    score: Interval
    baseline: float


def measures(task: TaskAnswers, *, first: str | None) -> list[Measure]:
    """The scores of a task; the one that the config asks for, or the usual one, comes first."""
    truth, right = task.truth, task.right
    whole = wilson(int(right.sum()), len(right))
    sets = np.unique(truth, axis=0, return_counts=True)[1]
    commonest = float(sets.max()) / len(truth)
    match task.kind:
        case "multilabel":
            share = truth.mean(axis=0)
            always = float(np.maximum(share, 1 - share).mean())
            labels = mean_share(task.answered == truth)
            usual = [
                Measure("exact-match", "exact match", whole, commonest),
                Measure("accuracy", "accuracy of labels", labels, always),
                Measure("auc", "AUC, mean of labels", auc(task.probabilities, truth), 0.5),
            ]
        case "binary":
            usual = [
                Measure("auc", "AUC", auc(task.probabilities[:, 1:], truth[:, 1:]), 0.5),
                Measure("accuracy", "accuracy", whole, commonest),
            ]
        case _:
            area = auc(task.probabilities, truth)
            usual = [
                Measure("accuracy", "accuracy", whole, commonest),
                Measure("auc", "AUC, mean of classes", area, 0.5),
            ]
    return sorted(usual, key=lambda measure: measure.key != first)


def tasks_details(tasks: Sequence[TaskAnswers]) -> Html:
    """Of every task confusions or labels, the ROC curve of two classes, and calibration."""
    note = (
        "Calibration: what is said with probability p should be true in a share p of cases, which "
        "is the dashed line. Larger dots are more answers; the expected calibration error is "
        "their mean distance from that line."
    )
    return join([el("p", note, class_="note"), *map(_details, tasks)])


def _details(task: TaskAnswers) -> Html:
    parts = [_labels(task) if task.kind == "multilabel" else _confusions(task)]
    two = len(task.classes) == 2 and task.kind != "multilabel"
    if two:
        parts.append(_roc(task))
    parts.append(_reliability(task))
    row = el("div", *parts, class_="side" if two else "side pair")
    return el("div", el("h3", task.name), row)


def _confusions(task: TaskAnswers) -> Html:
    counts = confusion(task.truth.argmax(axis=1), task.answered.argmax(axis=1), len(task.classes))
    return _matrix(task, counts) if len(counts) <= _CLASSES else _pairs(task, counts)


def _matrix(task: TaskAnswers, counts: Counts) -> Html:
    names = task.classes
    across = el("th", "answered", scope="colgroup", colspan=len(names), class_="axis")
    heads = [el("th", shortened(name, 10), scope="col", title=name) for name in names]
    rows = []
    for i, (name, row) in enumerate(zip(names, counts.tolist(), strict=True)):
        total = max(sum(row), 1)
        cells = [
            el("td", f"{count:,}", class_=f"{_shade(count / total)}{' own' if i == j else ''}")
            for j, count in enumerate(row)
        ]
        rows.append(el("tr", el("th", shortened(name, 24), scope="row", title=name), *cells))
    caption = "Confusion matrix, in images"
    whole = el(
        "table",
        el("caption", caption),
        el(
            "thead",
            el("tr", el("td"), across),
            el("tr", el("th", "true", class_="axis down"), *heads),
        ),
        el("tbody", *rows),
        class_="matrix",
    )
    return scrolling(whole, f"Confusion matrix of {task.name}")


def _shade(share: float) -> str:
    """The class of a cell by its share of the row, from 1 to 8; none is pale."""
    return f"s{max(1, round(8 * share))}" if share else "z"


def _pairs(task: TaskAnswers, counts: Counts) -> Html:
    """The commonest confusions of very many classes."""
    wrong = counts * ~np.eye(len(counts), dtype=bool)
    order = np.argsort(-wrong, axis=None, kind="stable")[:_PAIRS]
    places = [divmod(int(place), len(counts)) for place in order]
    rows = [
        [task.classes[i], task.classes[j], f"{wrong[i, j]:,}", f"{counts[i].sum():,}"]
        for i, j in places
        if wrong[i, j]
    ]
    columns = ["true", "answered", "images", "of"]
    caption = f"Commonest confusions among {len(counts):,} classes" if rows else "No confusion"
    return table(caption, columns, rows)


def _labels(task: TaskAnswers) -> Html:
    answered = task.answered
    rows = []
    for number, counts in enumerate(label_counts(task.truth, answered)):
        column = slice(number, number + 1)
        area = auc(task.probabilities[:, column], task.truth[:, column])
        shares = (counts.recall, counts.precision, area.value)
        words = ["–" if np.isnan(share) else f"{share:.3f}" for share in shares]
        numbers = [counts.found + counts.missed, counts.missed, counts.invented]
        rows.append([task.classes[number], *(f"{count:,}" for count in numbers), *words])
    columns = ["label", "images", "missed", "invented", "recall", "precision", "AUC"]
    return table(f"Labels of {task.name}", columns, rows, class_="counts")


def _roc(task: TaskAnswers) -> Html:
    scores, truth = task.probabilities[:, 1], task.truth[:, 1]
    area = auc(scores[:, None], truth[:, None])
    if not area.known:
        text = "No ROC curve: all test images are of one class."
        return el("p", text, class_="note")
    chart = roc_chart(*roc(scores, truth), area)
    between = f"AUC {area.value:.3f} ({area.low:.3f} – {area.high:.3f}) for {task.classes[1]}"
    caption = el("figcaption", "ROC curve")
    return el("figure", caption, chart, el("p", between, class_="note"), class_="square")


def _reliability(task: TaskAnswers) -> Html:
    match task.kind:
        case "multilabel":
            said, true = task.probabilities.ravel(), task.truth.ravel()
            names = "probability of a label", "share that have it"
        case "binary":
            said, true = task.probabilities[:, 1], task.truth[:, 1]
            names = f"probability of {shortened(task.classes[1], 20)}", "share of images"
        case _:
            said, true = task.probabilities.max(axis=1), task.right
            names = "probability of the answer", "share that are right"
    found = calibration(said, true)
    chart = reliability_chart(found, said=names[0], true=names[1])
    note = f"Expected calibration error {found.error:.3f}"
    caption = el("figcaption", "Calibration")
    return el("figure", caption, chart, el("p", note, class_="note"), class_="square")
