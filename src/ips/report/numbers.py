"""Figures of tasks without classes: predicted against true numbers, and survival curves."""

from __future__ import annotations

import numpy as np
import torch

from ips.predictions import TaskPredictions
from ips.report.charts import Chart, Figure, Line, ticks
from ips.survival import kaplan_meier, log_rank
from ips.tasks import Survival

_DOTS = 1_000  # more would only make the page large


def number_figures(task: TaskPredictions) -> list[Figure]:
    """The figures of a regression or of survival."""
    return [_survival(task, task.task) if isinstance(task.task, Survival) else _scatter(task)]


def _scatter(task: TaskPredictions) -> Figure:
    predicted, labels = task.probabilities[:, 0], task.labels[:, 0]
    low = float(min(predicted.min(), labels.min()))
    high = float(max(predicted.max(), labels.max()))
    margin = 0.05 * (high - low) or 0.5
    span = low - margin, high + margin
    marks = ticks(*span)
    chosen = np.linspace(0, len(labels) - 1, min(_DOTS, len(labels))).round().astype(np.int64)
    chart = Chart(
        label=f"Predicted against true {task.name} of {len(labels)} images",
        x_name=f"true {task.name}",
        y_name=f"predicted {task.name}",
        lines=[Line("guide", np.array(span), np.array(span))],
        dots=[(float(labels[i]), float(predicted[i])) for i in chosen],
        x_ticks=marks,
        y_ticks=marks,
        x_range=span,
        y_range=span,
    )
    return Figure("Predicted against true", chart, "On the dashed line, predictions are right.")


def _survival(task: TaskPredictions, spec: Survival) -> Figure:
    """Kaplan-Meier curves of the images of high and of low predicted risk."""
    risks = spec.risk(torch.from_numpy(task.probabilities)).numpy()
    times, events = task.labels.T
    threshold, origin = spec.threshold, "training images"
    if threshold is None:
        threshold, origin = float(np.median(risks)), "these images"
    high = risks > threshold
    lines = []
    for number, (name, group) in enumerate({"high risk": high, "low risk": ~high}.items()):
        if group.any():
            x, y = kaplan_meier(times[group], events[group]).steps()
            lines.append(Line(f"line c{number}", x, y, f"{name}, {int(group.sum())} images"))
    last = float(times.max()) or 1.0
    chart = Chart(
        label=f"Kaplan-Meier curves of {' and '.join(line.name for line in lines)}",
        x_name=f"{task.name}, time",
        y_name="share without event",
        lines=lines,
        x_ticks=ticks(0, last),
        x_range=(0.0, last),
    )
    p = log_rank(times, events, high)
    note = f"High risk: above the median of the {origin}, {threshold:.3g}."
    if p == p:
        note += f" Log-rank test of the difference: p {'< 0.001' if p < 0.001 else f'= {p:.3f}'}."
    return Figure("Survival by predicted risk (Kaplan-Meier)", chart, note)
