"""The order of examples, and the CSV file of predictions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from ips.predictions import (
    TaskPredictions,
    TestPredictions,
    read_predictions,
    write_predictions,
)
from ips.tasks import Classification
from tests.report.made import EVIL, KINDS, config, made


def test_best_and_worst_are_sorted_by_cross_entropy() -> None:
    p = np.array([[0.6, 0.4], [0.9, 0.1], [0.3, 0.7], [0.01, 0.99]])
    labels = np.array([[1, 0]] * 4) == 1
    predictions = TestPredictions(
        list("abcd"), [TaskPredictions("t", Classification("multiclass", 2), labels, p)]
    )
    assert predictions.best_and_worst(5) == ([1, 0], [3, 2])
    assert predictions.best_and_worst(1) == ([1], [3])
    other = TaskPredictions(
        "l", Classification("multilabel", 2), labels, np.array([[0.9, 0.8]] * 4)
    )
    both = replace(predictions, tasks=[*predictions.tasks, other])
    assert both.best_and_worst(4) == ([], [3, 2, 0, 1])  # no image is right in both


def test_predictions_survive_a_round_trip_through_their_file(tmp_path: Path) -> None:
    names = ['a,"b"', "c\nd", EVIL]
    settings = config(kind={"kind": "multiclass", "classes": 3, "names": names}, **KINDS)
    predictions = made(settings, count=5)
    write_predictions(tmp_path / "predictions.csv", predictions)
    back = read_predictions(tmp_path / "predictions.csv", settings)
    assert back is not None
    assert back.images == predictions.images
    for a, b in zip(predictions.tasks, back.tasks, strict=True):
        assert (a.name, a.task) == (b.name, b.task)
        assert np.array_equal(a.labels, b.labels)
        assert np.allclose(a.probabilities, b.probabilities, rtol=1e-8)


def test_a_file_of_other_predictions_is_not_read(tmp_path: Path) -> None:
    path, settings = tmp_path / "predictions.csv", config(a=KINDS["binary"])
    assert read_predictions(path, settings) is None
    write_predictions(path, made(settings, count=3))
    assert read_predictions(path, settings) is not None
    assert read_predictions(path, config(b=KINDS["binary"])) is None
    assert read_predictions(path, config(a=KINDS["two classes"])) is None
    whole = path.read_text()
    wrong = [whole.replace("0.", other, 1) for other in ("x.", "nan", "-0.", "7.")]
    for text in (whole.rsplit("\n", 2)[0], *wrong, "", "a,b\n", "\0", '"' + "k" * 200_000):
        path.write_text(text)
        assert read_predictions(path, settings) is None
