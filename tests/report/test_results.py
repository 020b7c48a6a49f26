"""Tables and curves of a task against counts by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ips.predictions import TaskPredictions
from ips.report.results import confusion_matrix, task_results
from ips.task_scores import task_scores
from ips.tasks import Classification


def one_hot(classes: list[int], count: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.eye(count, dtype=bool)[classes]


def test_rows_of_the_confusion_matrix_are_true_classes() -> None:
    labels, predicted = one_hot([0, 0, 1, 2, 2], 3), one_hot([0, 1, 1, 0, 2], 3)
    task = TaskPredictions("t", Classification("multiclass", 3), labels, predicted.astype(float))
    assert confusion_matrix(task).tolist() == [[1, 1, 0], [0, 1, 0], [1, 0, 1]]


def test_the_label_table_counts_errors() -> None:
    labels = np.array([[1, 0], [1, 0], [0, 0]]) == 1
    probabilities = np.array([[0.9, 0.1], [0.2, 0.1], [0.8, 0.1]])
    task = TaskPredictions("t", Classification("multilabel", 2), labels, probabilities)
    table = task_results(task).table
    assert table is not None
    # one found, one missed, one false positive; nothing of the second label
    label, recall, precision, _, *counts = table.rows[0]
    assert (label, recall, precision, counts) == ("0", "0.500", "0.500", ["2", "1", "1"])
    assert table.rows[1] == ["1", "–", "–", "–", "0", "0", "0"]


def test_the_roc_curve_goes_from_corner_to_corner_over_its_area() -> None:
    rng = np.random.default_rng(2)
    labels = one_hot(rng.integers(0, 2, 50).tolist(), 2)
    p = np.round(0.6 * rng.random(50) + 0.4 * labels[:, 1], 1)
    task = TaskPredictions("t", Classification("binary", 2), labels, np.stack([1 - p, p], axis=1))
    chart = task_results(task).figures[0].chart
    assert chart is not None
    curve = chart.lines[1]
    assert (curve.x[0], curve.y[0], curve.x[-1], curve.y[-1]) == (0, 0, 1, 1)
    area = float(np.sum(np.diff(curve.x) * (curve.y[1:] + curve.y[:-1]) / 2))
    assert area == pytest.approx(task_scores(task).scores[0].interval.value, abs=1e-6)


def test_sensitivity_and_specificity_are_those_of_the_positive_class() -> None:
    p = np.array([0.9, 0.8, 0.1, 0.7, 0.2, 0.3, 0.4, 0.1])
    labels = one_hot([1, 1, 1, 0, 0, 0, 0, 0], 2)
    task = Classification("binary", 2, names=("ok", "defect"))
    predictions = TaskPredictions("t", task, labels, np.stack([1 - p, p], axis=1))
    note = task_results(predictions).figures[0].note
    assert note.startswith("For defect: AUC 0.7")
    assert "sensitivity 0.667 (0.208 – 0.939), specificity 0.800 (" in note
