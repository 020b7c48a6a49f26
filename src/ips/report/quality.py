"""ROC curves and calibration of a task: figures for the page, and numbers for JSON.

Letters: n images, C classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torchmetrics.functional.classification import binary_roc

from ips.explain.colours import shortened
from ips.predictions import TaskPredictions
from ips.report.charts import COLOURS, DIAGONAL, Chart, Figure, Line
from ips.statistics import (
    Bin,
    Bools,
    Floats,
    Interval,
    auc,
    auc_value,
    calibration,
    calibration_error,
    wilson,
)
from ips.task_scores import grouped_interval
from ips.tasks import Regression


def roc_figure(task: TaskPredictions) -> Figure | None:
    """The ROC curve of the second of two classes, or of each class; None for many classes."""
    if len(task.classes) > COLOURS:
        return None
    curves = roc_curves(task)
    if not curves:
        return Figure("ROC curve", None, f"No ROC curve: {task.only_class} in the test set.")
    lines = [
        Line(f"line c{task.classes.index(name)}", x, y, "" if len(curves) == 1 else name)
        for name, (x, y, _) in curves.items()
    ]
    areas = {name: _area(task, task.classes.index(name)) for name in curves}
    label = ", ".join(f"{name} {area.value:.3f}" for name, area in areas.items())
    axes = "false positive rate", "true positive rate"
    chart = Chart(f"ROC curve, area: {label}", *axes, lines=[DIAGONAL, *lines])
    if len(task.classes) == 2 and task.kind != "multilabel":
        parts = {"AUC": areas[task.classes[1]], **decision_rates(task)}
        texts = [f"{name} {_with_interval(interval)}" for name, interval in parts.items()]
        return Figure("ROC curve", chart, f"For {task.classes[1]}: {', '.join(texts)}")
    texts = [f"{name} {_with_interval(area)}" for name, area in areas.items()]
    return Figure("ROC curve of each class", chart, f"AUC: {', '.join(texts)}")


def roc_curves(task: TaskPredictions) -> dict[str, tuple[Floats, Floats, Floats]]:
    """False and true positive rates and thresholds by class; of two classes, that of the second.

    Classes that no image or every image has are left out.
    """
    first = 1 if len(task.classes) == 2 and task.kind != "multilabel" else 0
    curves = {}
    for i, name in enumerate(task.classes[first:], start=first):
        p, labels = torch.from_numpy(task.probabilities[:, i]), torch.from_numpy(task.labels[:, i])
        if 0 < int(labels.sum()) < len(labels):
            x, y, thresholds = (part.double().numpy() for part in binary_roc(p, labels.int()))
            curves[name] = x, y, thresholds
    return curves


def decision_rates(task: TaskPredictions) -> dict[str, Interval]:
    """Sensitivity and specificity of the decisions of a task with two classes."""
    return {
        name: _interval(task, _rate(column), _wilson_rate(task, column))
        for name, column in (("sensitivity", 1), ("specificity", 0))
    }


def _rate(column: int) -> Callable[[TaskPredictions], float]:
    """Share of the images of a class that are predicted as such."""

    def rate(task: TaskPredictions) -> float:
        found = task.predicted[task.labels[:, column], column]
        return float(found.mean()) if len(found) else float("nan")

    return rate


def _wilson_rate(task: TaskPredictions, column: int) -> Interval:
    found = task.predicted[task.labels[:, column], column]
    return wilson(int(found.sum()), len(found))


def _area(task: TaskPredictions, column: int) -> Interval:
    def value(part: TaskPredictions) -> float:
        return auc_value(part.probabilities[:, [column]], part.labels[:, [column]])

    return _interval(task, value, auc(task.probabilities[:, [column]], task.labels[:, [column]]))


def _interval(
    task: TaskPredictions, value: Callable[[TaskPredictions], float], independent: Interval
) -> Interval:
    """The interval over the groups of the images, or that for ``independent`` images."""
    return independent if task.groups is None else grouped_interval(task, value)


def _with_interval(i: Interval) -> str:
    return f"{i.value:.3f} ({i.low:.3f} – {i.high:.3f})"


def calibration_figure(task: TaskPredictions) -> Figure:
    """The reliability diagram of a task with classes."""
    bins = calibration_bins(task)
    error = calibration_error(bins)
    match task.kind:
        case "multilabel":
            names = "predicted probability of a label", "fraction of true labels"
        case "binary":
            names = f"probability of {shortened(task.classes[1], 20)}", "fraction of images"
        case _:
            names = "probability of the predicted class", "fraction correct"
    label = f"Reliability diagram, calibration error {error:.3f}"
    chart = Chart(label, *names, lines=[DIAGONAL], bins=bins)
    return Figure("Calibration", chart, f"Expected calibration error {error:.3f}")


def calibration_bins(task: TaskPredictions) -> list[Bin]:
    """Predictions of similar probability, and how many of them are right."""
    return calibration(*_probability_and_truth(task))


def _probability_and_truth(task: TaskPredictions) -> tuple[Floats, Bools]:
    match task.kind:
        case "multilabel":
            return task.probabilities.ravel(), task.labels.ravel()
        case "binary":
            return task.probabilities[:, 1], task.labels[:, 1]
        case _:
            return (task.probabilities * task.predicted).sum(axis=1), task.correct


def quality_values(task: TaskPredictions) -> dict[str, Any]:
    """ROC curves and calibration as plain values for JSON; empty for survival.

    The calibration of a regression is the line of true against predicted numbers, whose slope
    should be 1 and whose intercept should be 0.
    """
    task = task.labelled()
    if isinstance(task.task, Regression):
        line = _line(task)
        return {} if line is None else {"calibration": line}
    if not task.has_classes or not len(task.labels):
        return {}
    values: dict[str, Any] = {}
    if len(task.classes) == 2 and task.kind != "multilabel":
        values = {name: _as_dict(i) for name, i in decision_rates(task).items() if i.defined}
    values["roc"] = {
        name: {
            "auc": _as_dict(_area(task, task.classes.index(name))),
            "false_positive_rate": _rounded(x),
            "true_positive_rate": _rounded(y),
            "threshold": _rounded(np.minimum(thresholds, 1)),  # the first is above all numbers
        }
        for name, (x, y, thresholds) in roc_curves(task).items()
    }
    bins = calibration_bins(task)
    values["calibration"] = {
        "expected_error": round(calibration_error(bins), 6),
        "bins": [
            {
                "predictions": each.count,
                "probability": round(each.probability, 6),
                "fraction": round(each.fraction, 6),
            }
            for each in bins
        ],
    }
    return values


def _line(task: TaskPredictions) -> dict[str, float] | None:
    predicted, labels = task.probabilities[:, 0], task.labels[:, 0]
    spread = float(predicted.var()) if len(predicted) else 0.0
    if not spread:
        return None
    slope = float(np.cov(predicted, labels, bias=True)[0, 1]) / spread
    intercept = float(labels.mean()) - slope * float(predicted.mean())
    return {"slope": round(slope, 6), "intercept": round(intercept, 6)}


def _as_dict(i: Interval) -> dict[str, float]:
    return {"score": round(i.value, 6), "low": round(i.low, 6), "high": round(i.high, 6)}


def _rounded(values: Floats) -> list[float]:
    return [round(float(value), 6) for value in values]
