"""Tasks without classes: a regression, and survival with Cox's loss or hazards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from ips.config import Config, TaskConfig
from ips.config_io import parse_config
from ips.errors import ConfigError
from ips.predictions import PredictionCollector, read_predictions, write_predictions
from ips.task_scores import task_scores
from ips.tasks import Cox, Hazards, Regression, Task, build_tasks

NAN = torch.nan
AGES = torch.tensor([30.0, 50.0, NAN, 70.0, 20.0])
TIMES = torch.tensor([[5.0, 1], [8.0, 0], [NAN, NAN], [2.0, 1], [8.0, 1], [30.0, 0]])
TASKS: list[tuple[Task, Tensor]] = [
    (Regression(40.0, 20.0), AGES),
    (Regression(40.0, 20.0, squared=True), AGES),
    (Cox(), TIMES),
    (Hazards(cuts=(4.0, 8.0, 20.0)), TIMES),
]


@pytest.mark.parametrize(("task", "labels"), TASKS)
def test_an_image_without_a_label_is_as_if_absent(task: Task, labels: Tensor) -> None:
    logits = torch.randn(len(labels), task.outputs)
    rest = task.known(labels)
    assert rest.tolist() == [i != 2 for i in range(len(labels))]
    assert task.loss(logits, labels) == task.loss(logits[rest], labels[rest])
    assert task.answer_statistics(labels).equal(task.answer_statistics(labels[rest]))
    with_gap, without = task.metric(), task.metric()
    task.update(with_gap, logits, labels)
    task.update(without, logits[rest], labels[rest])
    assert with_gap.compute().equal(without.compute())
    missing = task.missing.unsqueeze(0)
    logits.requires_grad_()
    loss = task.loss(logits[:1], missing)
    loss.backward()
    assert loss == 0


@pytest.mark.parametrize(("task", "labels"), TASKS)
def test_no_constant_answer_is_better_than_the_constant_loss(task: Task, labels: Tensor) -> None:
    constant = torch.zeros(task.outputs, requires_grad=True)
    optimizer = torch.optim.LBFGS([constant], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = task.loss(constant.expand(len(labels), -1), labels)
        value.backward()
        return value

    optimizer.step(loss)
    best = float(task.constant_loss(task.answer_statistics(labels)))
    assert best == pytest.approx(loss().item(), abs=2e-3)


def test_a_regression_answers_in_the_units_of_the_table() -> None:
    task = Regression(40.0, 20.0)
    logits = torch.tensor([[-0.5], [1.5]])
    assert task.activation(logits).flatten().tolist() == [30, 70]
    assert task.loss(logits, torch.tensor([30.0, 70.0])) == 0
    assert task.loss(logits, torch.tensor([30.0, 110.0])) == pytest.approx((2 - 0.5) / 2)  # Huber
    assert task.divergence(logits, torch.tensor([0.5])).tolist() == [0.5, 0.5]


def test_the_partial_likelihood_is_that_of_cox() -> None:
    risks = torch.tensor([0.3, -1.0, 2.0, 0.5])
    labels = torch.tensor([[3.0, 1], [5.0, 0], [4.0, 1], [3.0, 1]])
    naive = [
        float(risks[i] - risks[labels[:, 0] >= labels[i, 0]].exp().sum().log())
        for i in range(4)
        if labels[i, 1]
    ]
    loss = Cox().loss(risks[:, None], labels)
    assert float(loss) == pytest.approx(-np.mean(naive))


def test_a_batch_without_events_teaches_cox_nothing() -> None:
    task, logits = Cox(), torch.randn(3, 1, requires_grad=True)
    labels = torch.tensor([[3.0, 0], [5.0, 0], [1.0, 0]])
    loss = task.loss(logits, labels)
    loss.backward()
    assert loss == 0
    assert logits.grad is not None
    assert not logits.grad.any()
    assert not task.teaches(labels)
    assert task.nothing_to_learn(labels) == "no event"


def test_hazards_are_learnt_from_the_intervals_under_observation() -> None:
    task = Hazards(cuts=(4.0, 8.0, 20.0))
    logits = torch.tensor([[0.1, -0.4, 0.7]])
    h = torch.sigmoid(logits[0])
    expected = {
        (5.0, 1): -(1 - h[0]).log() - h[1].log(),  # an event in the second interval
        (8.0, 1): -(1 - h[0]).log() - h[1].log(),
        (5.0, 0): -(1 - h[0]).log(),  # less than half of the second was observed
        (7.0, 0): -(1 - h[0]).log() - (1 - h[1]).log(),
        (99.0, 1): -(1 - h).log().sum(),  # later than all intervals
        (0.0, 1): -h[0].log(),
    }
    for label, loss in expected.items():
        assert float(task.loss(logits, torch.tensor([label]))) == pytest.approx(float(loss))
    columns = task.class_activation(logits)[0]
    assert columns.tolist() == pytest.approx((1 - h).cumprod(dim=0).tolist())
    assert task.class_names == ["beyond 4", "beyond 8", "beyond 20"]
    assert task.answer(columns) == pytest.approx(float(1 - columns.mean()))


def config() -> Config:
    tasks = {
        "age": {"kind": "regression", "mean": 40.0, "deviation": 20.0},
        "os": {"kind": "survival", "event": "died"},
        "slow": {"kind": "survival", "event": "died", "loss": "hazards", "cuts": [4.0, 8.0]},
    }
    return parse_config({"tasks": tasks}, source="test")


def test_predictions_are_stored_and_scored(tmp_path: Path) -> None:
    tasks = build_tasks(config().tasks)
    collector = PredictionCollector(tasks)
    labels = {"age": torch.cat([AGES, torch.tensor([35.0])]), "os": TIMES, "slow": TIMES}
    logits = {name: torch.randn(6, task.outputs) for name, task in tasks.items()}
    collector.add([f"{i}.png" for i in range(6)], logits, labels)
    predictions = collector.predictions()
    write_predictions(tmp_path / "p.csv", predictions)
    stored = read_predictions(tmp_path / "p.csv", config())
    assert stored is not None
    for task, again in zip(predictions.tasks, stored.tasks, strict=True):
        assert again.has_label.tolist() == [i != 2 for i in range(6)]
        assert np.allclose(again.labels, task.labels, equal_nan=True)
        assert np.allclose(again.probabilities, task.probabilities)
        assert task_scores(task).images == 5
    keys = [score.key for score in task_scores(stored.tasks[0]).scores]
    assert keys == ["r2", "pearson", "mae"]
    assert [score.key for score in task_scores(stored.tasks[1]).scores] == ["concordance"]
    assert stored.tasks[1].truth_text(1) == "8+"
    best, worst = stored.best_and_worst(2)
    assert len(best) == len(worst) == 2
    assert not {*best} & {*worst}
    text = (tmp_path / "p.csv").read_text().replace("8+", "long")
    (tmp_path / "p.csv").write_text(text)
    assert read_predictions(tmp_path / "p.csv", config()) is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "survival"}, "name that of events as event"),
        ({"kind": "regression", "names": ["a", "b"]}, "names=.* with kind=regression"),
        ({"kind": "regression", "loss": "cox"}, "loss=cox with kind=regression: use huber or"),
        ({"kind": "regression", "metric": "auc"}, "metric=auc with kind=regression: use r2 or"),
        ({"kind": "multiclass", "mean": 3.0}, "mean=3.0 with kind=multiclass"),
        ({"kind": "survival", "event": "e", "cuts": [3, 2]}, "ascending times"),
    ],
)
def test_settings_of_another_kind_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_config({"tasks": {"t": values}}, source="test")


def test_a_number_has_no_patch_level_head() -> None:
    values = {"tasks": {"age": {"kind": "regression"}}, "readout": "age"}
    with pytest.raises(ConfigError, match="'age' has no classes"):
        parse_config(values, source="test")


def test_columns_of_a_survival_task() -> None:
    assert TaskConfig(kind="survival", event="died").columns("os") == {
        "os": "tasks.os",
        "died": "tasks.os.event",
    }
