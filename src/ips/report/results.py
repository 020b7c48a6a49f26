"""The results of one task: scores, confusion matrix or label table, ROC curve and calibration.

Letters: n images, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torchmetrics.functional.classification import (
    multiclass_confusion_matrix,
    multilabel_confusion_matrix,
)

from ips.predictions import TaskPredictions
from ips.report.charts import Figure
from ips.report.numbers import number_figures
from ips.report.quality import calibration_figure, roc_figure
from ips.statistics import auc
from ips.task_scores import TaskScores, task_scores

Counts = npt.NDArray[np.int64]

_CLASSES = 40  # a confusion matrix with more classes could not be read
_PAIRS = 20  # number of confused pairs to list instead


@dataclass(frozen=True)
class Table:
    """A table whose first column names the rows."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    style: str = ""


@dataclass(frozen=True)
class TaskResults:
    """What the page shows about one task; ``confusion`` is ``(C, C)``, true classes first."""

    name: str
    classes: Sequence[str]
    scores: TaskScores
    confusion: list[list[int]] | None
    table: Table | None
    figures: list[Figure]


def task_results(task: TaskPredictions) -> TaskResults:
    """Scores, confusions or labels, ROC curve, and calibration."""
    task = task.labelled()
    if not len(task.labels):
        return TaskResults(task.name, task.classes, task_scores(task), None, None, [])
    if not task.has_classes:
        figures = number_figures(task)
        return TaskResults(task.name, task.classes, task_scores(task), None, None, figures)
    curve = roc_figure(task)
    figures = [calibration_figure(task)] if curve is None else [curve, calibration_figure(task)]
    confusion, table = None, None
    if task.kind == "multilabel":
        table = _labels(task)
    else:
        counts = confusion_matrix(task)
        if len(counts) <= _CLASSES:
            confusion = counts.tolist()
        else:
            table = _confused_pairs(task, counts)
    return TaskResults(task.name, task.classes, task_scores(task), confusion, table, figures)


def confusion_matrix(task: TaskPredictions) -> Counts:
    """``(C, C)`` numbers of images by true class (rows) and predicted class (columns)."""
    predicted = torch.from_numpy(task.predicted).int().argmax(dim=1)
    labels = torch.from_numpy(task.labels).int().argmax(dim=1)
    counts: Counts = multiclass_confusion_matrix(predicted, labels, len(task.classes)).numpy()
    return counts


def _confused_pairs(task: TaskPredictions, counts: Counts) -> Table:
    wrong = counts * ~np.eye(len(counts), dtype=bool)
    order = np.argsort(-wrong, axis=None, kind="stable")[:_PAIRS]
    rows = [
        [task.classes[i], task.classes[j], f"{wrong[i, j]:,}", f"{counts[i].sum():,}"]
        for i, j in (divmod(int(place), len(counts)) for place in order)
        if wrong[i, j]
    ]
    caption = f"Most frequent confusions among {len(counts):,} classes" if rows else "No confusions"
    return Table(caption, ["true", "predicted", "images", "of"], rows)


def _labels(task: TaskPredictions) -> Table:
    predicted, labels = torch.from_numpy(task.predicted), torch.from_numpy(task.labels)
    counts = multilabel_confusion_matrix(predicted.int(), labels.int(), len(task.classes))  # C,2,2
    rows = []
    for i, ((_, false_positives), (missed, found)) in enumerate(counts.tolist()):
        area = auc(task.probabilities[:, [i]], task.labels[:, [i]])
        recall, precision = _ratio(found, found + missed), _ratio(found, found + false_positives)
        numbers = [f"{count:,}" for count in (found + missed, missed, false_positives)]
        auc_text = f"{area.value:.3f}" if area.defined else "–"
        rows.append([task.classes[i], recall, precision, auc_text, *numbers])
    columns = "label", "recall", "precision", "AUC", "images", "false negatives", "false positives"
    return Table(f"Labels of {task.name}", columns, rows, "counts")


def _ratio(part: int, whole: int) -> str:
    return f"{part / whole:.3f}" if whole else "–"
