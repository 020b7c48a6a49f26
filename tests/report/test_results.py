"""Scores and tables of a task against torchmetrics and against counts by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torchmetrics import AUROC

from ips.report.predictions import TaskPredictions
from ips.report.results import confusion_matrix, task_results, task_scores
from ips.tasks import Task
from tests.report.made import KINDS, config, made


def test_scores_are_those_of_torchmetrics() -> None:
    settings = config(**KINDS)
    for task in made(settings, count=60).tasks:
        for score in task_scores(task, first=None):
            key: Any = score.key
            count = len(task.classes)
            auroc = AUROC(task=task.kind, num_classes=count, num_labels=count)
            metric = auroc if key == "auc" else replace(task.task, score=key).metric()
            p, labels = torch.from_numpy(task.probabilities), torch.from_numpy(task.labels)
            if task.kind == "binary":
                p, labels = p[:, 1], labels[:, 1]
            elif task.kind == "multiclass":
                labels = labels.int().argmax(dim=1)
            metric.update(p.float(), labels.long())
            interval = score.interval
            assert interval.value == pytest.approx(float(metric.compute()), abs=1e-5)
            assert interval.low < interval.value < interval.high


def test_the_metric_of_the_config_comes_first() -> None:
    task = made(config(a=KINDS["multilabel"])).tasks[0]
    assert [m.key for m in task_scores(task, first=None)] == ["exact-match", "accuracy", "auc"]
    assert task_scores(task, first="auc")[0].key == "auc"


def one_hot(classes: list[int], count: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.eye(count, dtype=bool)[classes]


def test_rows_of_the_confusion_matrix_are_true_classes() -> None:
    labels, predicted = one_hot([0, 0, 1, 2, 2], 3), one_hot([0, 1, 1, 0, 2], 3)
    task = TaskPredictions("t", Task("multiclass", 3), labels, predicted.astype(float))
    assert confusion_matrix(task).tolist() == [[1, 1, 0], [0, 1, 0], [1, 0, 1]]


def test_the_label_table_counts_errors() -> None:
    labels = np.array([[1, 0], [1, 0], [0, 0]]) == 1
    probabilities = np.array([[0.9, 0.1], [0.2, 0.1], [0.8, 0.1]])
    task = TaskPredictions("t", Task("multilabel", 2), labels, probabilities)
    table = task_results(task, metric=None).table
    assert table is not None
    # one found, one missed, one false positive; nothing of the second label
    assert table.rows[0][:6] == ["0", "2", "1", "1", "0.500", "0.500"]
    assert table.rows[1] == ["1", "0", "0", "0", "–", "–", "–"]


def test_the_roc_curve_goes_from_corner_to_corner_over_its_area() -> None:
    rng = np.random.default_rng(2)
    labels = one_hot(rng.integers(0, 2, 50).tolist(), 2)
    p = np.round(0.6 * rng.random(50) + 0.4 * labels[:, 1], 1)
    task = TaskPredictions("t", Task("binary", 2), labels, np.stack([1 - p, p], axis=1))
    chart = task_results(task, metric=None).figures[0].chart
    assert chart is not None
    curve = chart.lines[1]
    assert (curve.x[0], curve.y[0], curve.x[-1], curve.y[-1]) == (0, 0, 1, 1)
    area = float(np.sum(np.diff(curve.x) * (curve.y[1:] + curve.y[:-1]) / 2))
    assert area == pytest.approx(task_scores(task, first="auc")[0].interval.value, abs=1e-6)
