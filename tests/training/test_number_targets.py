"""A regression and survival through all commands: train, report, predict, check."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ips import api
from ips.config_io import parse_config, write_yaml
from ips.data.labels import encode_labels
from ips.data.table import Row
from ips.errors import ConfigError, DataError
from ips.loading import load
from ips.tasks import Regression, build_tasks
from ips.training import build_data, load_model, resolve
from tests.training.own_images import add_column, features
from tests.training.tiny import own_values

TASKS: dict[str, dict[str, Any]] = {
    "age": {"kind": "regression"},
    "os": {"kind": "survival", "time": "days", "event": "died"},
    "slow": {"kind": "survival", "time": "days", "event": "died", "loss": "hazards"},
}


def made(folder: Path, **changes: object) -> dict[str, Any]:
    """Values of a config for 24 feature files with ages, times and events; one age is missing."""
    table = features(folder, count=24)
    add_column(table, "age", ["", *(f"{100 + 3 * i}" for i in range(23))])
    add_column(table, "days", [f"{5 * i + 1}" for i in range(24)])
    add_column(table, "died", ["1", "0", "1"] * 8)
    add_column(table, "split", ["train", "test", "train", "val"] * 6)
    values = own_values(table, encoder={"name": "projector", "dim": 8}, tasks=TASKS)
    return values | {"train": {"epochs": 2, "batch": 4, "warmup": 0}} | changes


def test_numbers_are_trained_reported_and_predicted(tmp_path: Path) -> None:
    values = made(tmp_path)
    write_yaml(values, tmp_path / "own.yaml")
    run = tmp_path / "run"
    evaluation = api.train(tmp_path / "own.yaml", run=run)
    assert evaluation.metrics == {"age": "r2", "os": "concordance", "slow": "concordance"}
    stored = json.loads((run / "test.json").read_text())
    assert set(stored["age"]["scores"]) == {"r2", "pearson", "mae"}
    config = load_model(run).config
    assert config.tasks["os"].threshold is not None
    train = [float(i * 3 + 97) for i in range(24) if i % 4 in (0, 2) and i]
    assert config.tasks["age"].mean == pytest.approx(np.mean(train))
    assert config.tasks["age"].deviation == pytest.approx(np.std(train))

    page = api.report(run).read_text(encoding="utf-8")
    assert "Predicted against true age" in page
    assert page.count("(Kaplan-Meier)") == 2
    assert "Smallest errors" in page
    other = api.report(run, labels=tmp_path / "labels.csv")
    assert "mean absolute error" in other.read_text(encoding="utf-8")

    cohort = api.evaluate_cohort(run, tmp_path / "labels.csv", out=tmp_path / "cohort")
    assert {task: scores.images for task, scores in cohort.results.items()} == {
        "age": 23,
        "os": 24,
        "slow": 24,
    }
    assert cohort.notes == [
        "18 of 24 images were used to train or choose the model, such as 0.h5, so the scores are "
        "too good"
    ]
    written = json.loads((tmp_path / "cohort/scores.json").read_text())["tasks"]
    assert set(written["age"]["calibration"]) == {"slope", "intercept"}
    assert written["slow"]["scores"]["concordance"]["low"] is not None

    found = api.predict_csv(
        run, [tmp_path / "labels.csv"], csv=tmp_path / "p.csv", labels=tmp_path / "labels.csv"
    )
    assert found.right == {}
    with (tmp_path / "p.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["truth_age"] == ""
    assert (rows[1]["truth_age"], rows[1]["truth_os"]) == ("100", "6+")
    assert 50 < float(rows[1]["answer_age"]) < 250
    assert "probability_age_value" not in rows[0]
    assert sum(name.startswith("probability_slow_beyond") for name in rows[0]) == 4
    predictor = load(run)
    explanation = predictor.predict(tmp_path / "1.h5")
    assert explanation.class_probabilities["age"] == {}
    assert float(rows[1]["answer_age"]) == pytest.approx(
        predictor.answers(explanation)["age"], 1e-4
    )
    assert "age: " in explanation.title

    checked = api.check(str(tmp_path / "own.yaml"))
    facts = {key: value for key, value in checked.facts.items() if key.startswith("training im")}
    assert facts["training images by age"].startswith("103 to 163")
    assert facts["training images by os"].startswith("8 events, 4 censored")


@pytest.mark.parametrize("method", ["topmil", "deepmil", "rps", "ips-deepmil"])
def test_other_methods_learn_numbers(tmp_path: Path, method: str) -> None:
    values = made(tmp_path, method=method, train={"epochs": 1, "batch": 6, "warmup": 0})
    values["aggregate"] = {}
    write_yaml(values, tmp_path / "own.yaml")
    evaluation = api.train(tmp_path / "own.yaml", run=tmp_path / "run")
    assert set(evaluation.scores) == set(TASKS)


def test_cox_needs_several_images_in_a_batch(tmp_path: Path) -> None:
    values = made(tmp_path, train={"epochs": 1, "batch": 1, "warmup": 0})
    config = parse_config(values, source="test")
    with pytest.raises(ConfigError, match=r"train\.batch=1 with loss=cox"):
        resolve(config, build_data(config))


def test_classes_that_do_not_exist_cannot_be_balanced(tmp_path: Path) -> None:
    values = made(tmp_path, train={"epochs": 1, "warmup": 0, "balance": "weights"})
    config = parse_config(values, source="test")
    with pytest.raises(ConfigError, match="no task has classes to balance"):
        resolve(config, build_data(config))


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"age": "old"}, r"a\.png: 'old' in column 'age' is not a number"),
        ({"days": "-3", "died": "1"}, "the time -3 in column 'days' is negative"),
        ({"days": "3", "died": "maybe"}, "'maybe' in column 'died' does not say whether"),
    ],
)
def test_wrong_numbers_are_refused(cells: dict[str, str], message: str) -> None:
    labels = {"age": "", "days": "", "died": "", **cells}
    tasks = parse_config({"tasks": {"age": TASKS["age"], "os": TASKS["os"]}}, source="test").tasks
    with pytest.raises(DataError, match=message):
        encode_labels([Row(Path("a.png"), labels, None)], tasks)


def test_the_model_knows_mean_and_deviation_of_a_regression() -> None:
    values = {"tasks": {"age": {"kind": "regression", "mean": 50.0, "deviation": 4.0}}}
    (task,) = build_tasks(parse_config(values, source="test").tasks).values()
    assert isinstance(task, Regression)
    assert task.activation(torch.tensor([[0.5]])).item() == 52
