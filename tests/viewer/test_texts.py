"""Predictions in the words of the page."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ips.config_io import parse_config
from ips.predictor import Predictor
from ips.training import build_model
from ips.viewer.texts import answer_names, describe_predictions
from tests.viewer.viewer_files import CONFIG


@pytest.fixture(scope="module")
def numbers() -> Predictor:
    """A model that predicts a number and two risks, one of them from hazards."""
    tasks: dict[str, Any] = {
        "age": {"kind": "regression", "mean": 50, "deviation": 10},
        "os": {"kind": "survival", "event": "died", "threshold": 0.5},
        "slow": {"kind": "survival", "event": "died", "loss": "hazards", "cuts": [4.0, 8.0]},
    }
    config = parse_config(CONFIG | {"tasks": tasks, "readout": None}, source="test")
    return Predictor(build_model(config), config)


def test_numbers_are_neither_right_nor_wrong(numbers: Predictor) -> None:
    probabilities = [np.array(p, np.float32) for p in ([61.25], [0.7], [0.2, 0.5])]
    rows = describe_predictions(numbers, probabilities, {"age": 61.25})
    assert [row["names"] for row in rows] == [["61.25"], ["0.7"], ["0.4"]]
    assert all(row["number"] for row in rows)
    assert [row["correct"] for row in rows] == [None, None, None]
    assert [row["note"] for row in rows] == [None, "high risk", None]
    low = describe_predictions(numbers, [probabilities[0], -probabilities[1], probabilities[2]], {})
    assert low[1]["note"] == "low risk"


def test_answers_as_names() -> None:
    assert answer_names("low") == ["low"]
    assert answer_names(["a", "b"]) == ["a", "b"]
    assert answer_names(0.123456) == ["0.1235"]
    assert answer_names(None) is None
