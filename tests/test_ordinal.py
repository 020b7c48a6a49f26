"""Grades: likelihood, decision and scores against naive ones, and a training by all commands."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchmetrics.functional.classification import multiclass_cohen_kappa

from ips import api
from ips.config_io import write_yaml
from ips.errors import DataError
from ips.predictions import TaskPredictions
from ips.statistics import quadratic_kappa_value
from ips.task_scores import task_scores
from ips.tasks import Ordinal
from tests.training.own_images import add_column, features
from tests.training.tiny import own_values

TASK = Ordinal("ordinal", 4)


def naive_probabilities(logits: torch.Tensor) -> list[float]:
    """The grade is k if it is higher than all below k, and not higher than k."""
    higher = torch.sigmoid(logits).tolist()
    found = []
    for k in range(len(higher) + 1):
        p = float(np.prod(higher[:k]))
        found.append(p * (1 - higher[k]) if k < len(higher) else p)
    return found


def test_probabilities_and_loss_are_those_of_the_grades() -> None:
    logits = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = torch.tensor([naive_probabilities(row) for row in logits], dtype=torch.float64)
    torch.testing.assert_close(TASK.class_activation(logits), expected)
    torch.testing.assert_close(expected.sum(dim=1), torch.ones(6, dtype=torch.float64))
    labels = torch.tensor([0, 1, 2, 3, -1, 3])
    known = labels >= 0
    naive = -expected[known, labels[known]].log().mean()
    torch.testing.assert_close(TASK.loss(logits, labels), naive)
    assert TASK.loss(logits + 100, torch.full((6,), 3)) < 1e-6  # without overflow
    assert torch.isfinite(TASK.loss(logits - 1000, torch.full((6,), 3)))


def test_the_constant_answer_is_the_frequencies() -> None:
    labels = torch.tensor([0, 0, 1, 3])
    share = torch.tensor([0.5, 0.25, 0.0, 0.25], dtype=torch.float64)
    entropy = -torch.xlogy(share, share).sum()
    torch.testing.assert_close(TASK.constant_loss(TASK.answer_statistics(labels)), entropy)


@pytest.mark.parametrize(
    ("columns", "grade"),
    [
        ([0.4, 0.0, 0.0, 0.6], 3),
        ([0.4, 0.1, 0.1, 0.4], 1),  # not the likeliest: that would be far off
        ([0.6, 0.0, 0.0, 0.4], 0),
        ([0.0, 0.0, 1.0, 0.0], 2),
    ],
)
def test_the_answer_is_the_median_grade(columns: list[float], grade: int) -> None:
    assert TASK.answer(torch.tensor(columns)) == str(grade)


def test_kappa_is_that_of_torchmetrics() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 4, 60)
    grades = np.clip(truth + rng.integers(-1, 2, 60), 0, 3)
    expected = multiclass_cohen_kappa(
        torch.from_numpy(grades), torch.from_numpy(truth), num_classes=4, weights="quadratic"
    )
    value = quadratic_kappa_value(grades.astype(float), truth.astype(float))
    assert value == pytest.approx(float(expected), abs=1e-6)
    assert np.isnan(quadratic_kappa_value(np.ones(3), np.ones(3)))
    one_hot = np.eye(4)
    task = TaskPredictions("g", TASK, one_hot[truth].astype(bool), one_hot[grades])
    scores = {score.key: score for score in task_scores(task).scores}
    assert next(iter(scores)) == "kappa"
    assert scores["kappa"].value == pytest.approx(value)
    assert scores["mae"].value == pytest.approx(np.abs(grades - truth).mean())
    assert scores["mae"].better


def test_grades_go_through_all_commands(tmp_path: Path) -> None:
    table = features(tmp_path, count=24)
    add_column(table, "stage", ["II", "I", "III", ""] * 6)
    add_column(table, "other", ["x", "y"] * 12)
    add_column(table, "split", ["train", "test", "train", "val", "train", "train"] * 4)
    names = ["I", "II", "III"]
    tasks: dict[str, dict[str, Any]] = {
        "stage": {"kind": "ordinal", "classes": 3, "names": names},
        "other": {"classes": 2},
    }
    values = own_values(table, encoder={"name": "projector", "dim": 8}, tasks=tasks)
    values |= {"train": {"epochs": 2, "batch": 4, "warmup": 0}, "readout": "stage"}
    config, run = tmp_path / "own.yaml", tmp_path / "run"
    write_yaml(values, config)
    assert api.train(config, run=run).metrics["stage"] == "kappa"
    assert "quadratic weighted kappa" in api.report(run).read_text(encoding="utf-8")
    api.predict_csv(run, [table], csv=tmp_path / "p.csv")
    with (tmp_path / "p.csv").open() as file:
        row = next(csv.DictReader(file))
    assert row["answer_stage"] in names
    assert sum(float(row[f"probability_stage_{name}"]) for name in names) == pytest.approx(1)
    api.evaluate_cohort(run, table, out=tmp_path / "out")
    scores = json.loads((tmp_path / "out/scores.json").read_text())["tasks"]["stage"]["scores"]
    assert {"kappa", "mae", "accuracy", "auc"} <= set(scores)
    tasks["stage"].pop("names")
    write_yaml(values, config)
    with pytest.raises(DataError, match=r"give their order, the lowest first, as tasks\.stage"):
        api.train(config, run=tmp_path / "other")
