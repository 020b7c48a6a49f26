"""The scores of a task against torchmetrics, the majority answer, and the verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torchmetrics import AUROC, Accuracy, F1Score

from ips import statistics
from ips.predictions import PredictionCollector, TaskPredictions
from ips.task_scores import Score, TaskScores, is_lopsided, task_scores
from ips.tasks import Classification, Cox, Regression
from tests.report.made import KINDS, config, made

BINARY = Classification("binary", 2, names=("ok", "defect"))


def predictions(task: Classification, labels: list[int], answers: list[int]) -> TaskPredictions:
    """Predictions that give each answer with probability 0.9."""
    C = len(task.class_names)
    chosen = np.eye(C)[answers]
    p = chosen * 0.9 + (1 - chosen) * 0.1 / (C - 1)
    return TaskPredictions("t", task, np.eye(C, dtype=bool)[labels], p)


def ranked(labels: list[int], p: list[float]) -> TaskPredictions:
    """Predictions of the binary task with these probabilities of its second class."""
    positive = np.array(p)
    one_hot = np.eye(2, dtype=bool)[labels]
    return TaskPredictions("t", BINARY, one_hot, np.stack([1 - positive, positive], axis=1))


def by_key(scores: TaskScores) -> dict[str, Score]:
    return {score.key: score for score in scores.scores}


def test_scores_are_those_of_torchmetrics() -> None:
    known = {name: kind for name, kind in KINDS.items() if name != "ordinal"}
    for task in made(config(**known), count=60).tasks:
        count: dict[str, Any] = {"num_classes": len(task.classes), "num_labels": len(task.classes)}
        for score in task_scores(task).scores:
            key: Any = score.key
            kind: Any = task.kind
            p, labels = torch.from_numpy(task.probabilities), torch.from_numpy(task.labels)
            if key in ("balanced-accuracy", "macro-f1") and kind == "binary":
                kind, labels = "multiclass", labels.int().argmax(dim=1)
            elif kind == "binary":
                p, labels = p[:, 1], labels[:, 1]
            elif kind == "multiclass":
                labels = labels.int().argmax(dim=1)
            metric = {
                "auc": AUROC(task=kind, **count),
                "balanced-accuracy": Accuracy(task=kind, average="macro", **count),
                "macro-f1": F1Score(task=kind, average="macro", **count),
            }.get(key) or Classification(kind, len(task.classes), score=key).metric()
            metric.update(p.float(), labels.long())
            interval = score.interval
            assert interval.value == pytest.approx(float(metric.compute()), abs=1e-5)
            assert interval.low < interval.value < interval.high


def test_lopsided_labels_have_further_scores() -> None:
    even = predictions(BINARY, [0, 0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 0, 1, 1])
    assert not is_lopsided(even)
    assert list(by_key(task_scores(even))) == ["auc", "accuracy"]
    lopsided = predictions(BINARY, [0] * 6 + [1] * 2, [0] * 7 + [1])
    assert is_lopsided(lopsided)
    assert list(by_key(task_scores(lopsided))) == [
        "auc",
        "accuracy",
        "balanced-accuracy",
        "macro-f1",
    ]
    three = Classification("multiclass", 4)  # one class has no images
    assert not is_lopsided(predictions(three, [0, 0, 1, 2], [0, 0, 1, 2]))
    assert is_lopsided(predictions(three, [0, 0, 0, 1, 2], [0, 0, 0, 1, 2]))
    several = TaskPredictions(
        "t", Classification("multilabel", 2), np.eye(2, dtype=bool), np.eye(2)
    )
    assert not is_lopsided(several)
    rare = np.array([[1, 0], [0, 0], [0, 1], [0, 1]]) == 1
    assert is_lopsided(replace(several, labels=rare, probabilities=rare.astype(float)))


def test_the_scores_of_the_majority_answer() -> None:
    scores = by_key(task_scores(predictions(BINARY, [0] * 6 + [1] * 2, [0] * 8)))
    assert {key: score.majority for key, score in scores.items()} == {
        "auc": 0.5,
        "accuracy": 0.75,
        "balanced-accuracy": 0.5,
        "macro-f1": pytest.approx(0.5 * 12 / 14),
    }
    for score in scores.values():  # these predictions are the majority answer
        assert score.interval.value == pytest.approx(score.majority)
        assert score.interval.low < score.majority < score.interval.high
        assert score.better is False


def test_a_model_that_only_knows_the_majority_is_told_so() -> None:
    scores = task_scores(predictions(BINARY, [0] * 17 + [1] * 3, [0] * 20))
    assert scores.majority == "ok"
    assert scores.verdict == "no better than always answering 'ok' on these 20 images"
    # 18 of 20 are more than 17 of 20, but not clearly
    labels, p = [0] * 17 + [1] * 3, [0.1, 0.4] * 8 + [0.3] + [0.9, 0.2, 0.1]
    assert (task_scores(ranked(labels, p)).verdict or "").startswith("no better than always")


def test_a_perfect_model_gets_no_verdict() -> None:
    scores = task_scores(predictions(BINARY, [0] * 60 + [1] * 20, [0] * 60 + [1] * 20))
    assert scores.verdict is None
    assert all(score.better for score in scores.scores)


def test_two_classes_have_the_same_interval_whether_binary_or_multiclass() -> None:
    labels = [0] * 40 + [1] * 5
    for answers in (labels, [0] * 38 + [1] * 7):
        kinds = (BINARY, Classification("multiclass", 2, names=("ok", "defect")))
        one, two = (by_key(task_scores(predictions(task, labels, answers))) for task in kinds)
        assert one == two


def test_a_model_that_ranks_well_but_always_answers_the_same() -> None:
    labels, p = [0] * 34 + [1] * 6, [0.1] * 30 + [0.2] * 10
    scores = task_scores(ranked(labels, p))
    assert scores.verdict == (
        "accuracy, balanced accuracy and macro F1 are no better than always answering 'ok' on "
        "these 40 images, but AUC is better"
    )


def test_a_single_class_cannot_be_judged() -> None:
    scores = task_scores(predictions(BINARY, [1, 1, 1], [1, 0, 1]))
    assert scores.verdict == "cannot be judged: only class defect in the test set"
    values = scores.as_dict()
    assert values["score"] is None
    assert values["scores"]["auc"] == {
        "score": None,
        "undefined": "only class defect in the test set",
    }
    assert values["scores"]["accuracy"]["score"] == 0.666667


def test_values_for_json() -> None:
    task = replace(BINARY, score="accuracy")
    values = task_scores(predictions(task, [0, 0, 0, 1, 1], [0, 0, 0, 0, 1])).as_dict()
    assert {k: v for k, v in values.items() if k not in ("scores", "verdict")} == {
        "metric": "accuracy",
        "score": 0.8,
        "images": 5,
        "majority_answer": "ok",
    }
    assert values["scores"]["accuracy"] == {
        "score": 0.8,
        "low": 0.375535,
        "high": 0.963776,
        "majority": 0.6,
        "better": False,
    }


def test_the_metric_of_the_config_comes_first() -> None:
    task = made(config(a=KINDS["multilabel"])).tasks[0]
    keys = list(by_key(task_scores(task)))
    assert keys[:3] == ["exact-match", "accuracy", "auc"]
    asked = replace(task, task=Classification("multilabel", len(task.classes), score="auc"))
    assert task_scores(asked).scores[0].key == "auc"


def test_batches_are_collected() -> None:
    tasks = {"a": BINARY, "b": Classification("multiclass", 3)}
    collector = PredictionCollector(tasks)
    logits = {"a": torch.tensor([[0.0], [2.0]]), "b": torch.eye(3)[:2]}
    collector.add(["x", "y"], logits, {"a": torch.tensor([0.0, 1.0]), "b": torch.tensor([2, 0])})
    more = {"a": torch.tensor([[-1.0]]), "b": torch.eye(3)[2:]}
    collector.add(["z"], more, {"a": torch.tensor([1.0]), "b": torch.tensor([1])})
    found = collector.predictions()
    assert found.images == ["x", "y", "z"]
    a, b = found.tasks
    assert a.labels.tolist() == [[True, False], [False, True], [False, True]]
    assert a.probabilities[1].tolist() == pytest.approx([0.119203, 0.880797], abs=1e-6)
    assert b.predicted.argmax(axis=1).tolist() == [0, 1, 2]


def numbers(count: int = 40) -> list[TaskPredictions]:
    """A regression and survival with errors."""
    rng = np.random.default_rng(3)
    truth, noise = rng.random((count, 1)) * 10, rng.normal(size=(count, 1))
    times = np.column_stack([10 - truth[:, 0], rng.random(count) < 0.7]).astype(float)
    return [
        TaskPredictions("age", Regression(), truth, truth + noise),
        TaskPredictions("os", Cox(), times, truth + 3 * noise),
    ]


def test_groups_change_intervals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "_GROUP_DRAWS", 200)
    for task in [*made(config(**KINDS), count=40, skill=1).tasks, *numbers()]:
        n = len(task.labels)
        alone = by_key(task_scores(task))
        images = by_key(task_scores(replace(task, groups=np.arange(n))))
        patients = by_key(task_scores(replace(task, groups=np.arange(n) // 8)))
        assert list(alone) == list(images) == list(patients)
        for key, score in alone.items():
            assert images[key].value == patients[key].value == score.value, key
            width = score.interval.high - score.interval.low
            bootstrapped = images[key].interval.high - images[key].interval.low
            assert bootstrapped == pytest.approx(width, rel=0.35), (task.name, key)
            assert patients[key].interval != images[key].interval


def test_images_without_a_label_are_in_no_group() -> None:
    task = ranked([0, 1, 0, 1], [0.1, 0.9, 0.4, 0.2])
    part = replace(task, known=np.array([True, True, False, True]), groups=np.array([0, 1, 2, 1]))
    assert task_scores(part).images == 3
    assert part.labelled().groups is not None
    assert part.labelled().groups.tolist() == [0, 1, 1]  # type: ignore[union-attr]
