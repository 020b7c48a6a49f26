"""Training on a table in which images lack the label of some task."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from ips import api
from ips.config_io import write_yaml
from ips.predictions import read_predictions
from ips.tasks import Classification
from ips.training import load_model
from ips.training.losses import constant_loss, mean_loss, task_shares
from tests.training.own_images import add_column, features
from tests.training.tiny import own_values

TASKS = {"a": Classification("multiclass", 2), "b": Classification("binary", 2)}


def test_a_task_without_labels_in_a_batch_does_not_count() -> None:
    logits = {"a": torch.randn(2, 2), "b": torch.randn(2, 1, requires_grad=True)}
    labels = {"a": torch.tensor([1, -1]), "b": torch.full((2,), torch.nan)}
    loss = mean_loss(TASKS, logits, labels)
    assert loss == TASKS["a"].loss(logits["a"][:1], labels["a"][:1])
    assert loss.requires_grad  # several devices need the gradient of all weights
    assert task_shares(TASKS, labels).tolist() == [1, 0]
    assert mean_loss(TASKS, logits, {**labels, "a": torch.tensor([-1, -1])}) == 0


def test_a_constant_answer_counts_tasks_as_often_as_they_have_labels() -> None:
    answers = {"a": torch.tensor([[3, 1]]), "b": torch.tensor([[0, 0]])}
    alone = constant_loss({"a": TASKS["a"]}, {"a": answers["a"]})
    assert constant_loss(TASKS, answers, shares=torch.tensor([1.0, 0.0])) == pytest.approx(alone)


def test_a_table_with_gaps_is_trained_tested_and_reported(tmp_path: Path) -> None:
    table = features(tmp_path, count=12)
    # The last two images of each split lack one of the labels.
    add_column(table, "stage", ["1", "0"] * 3 + ["1", "0", "1", ""] + ["0", "1"])
    text = table.read_text().replace("8.h5,1,", "8.h5,,")
    table.write_text(text)
    add_column(table, "split", ["train"] * 6 + ["test"] * 6)
    values = own_values(
        table,
        encoder={"name": "projector", "dim": 8},
        tasks={"grade": {"kind": "multiclass", "classes": 2}, "stage": {"kind": "binary"}},
    )
    write_yaml(values, tmp_path / "own.yaml")
    evaluation = api.train(tmp_path / "own.yaml", run=tmp_path / "run")
    assert {task: result.images for task, result in evaluation.results.items()} == {
        "grade": 5,
        "stage": 5,
    }
    page = api.report(tmp_path / "run").read_text(encoding="utf-8")
    assert "–</td>" in page
    config = load_model(tmp_path / "run").config
    stored = read_predictions(tmp_path / "run" / "predictions.csv", config)
    assert stored is not None
    known = {task.name: task.has_label.tolist() for task in stored.tasks}
    assert known["grade"] == [True, True, False, True, True, True]
    assert known["stage"] == [True, True, True, False, True, True]
    grade = evaluation.predictions.tasks[0].labelled()
    assert np.array_equal(stored.tasks[0].labelled().labels, grade.labels)
