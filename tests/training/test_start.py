"""Whether a training has begun, who chooses its patches until then, and what happens if not."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import Tensor

from ips.config import Config
from ips.config_io import parse_saved_config
from ips.errors import ConfigError
from ips.models import Net
from ips.tasks import Classification
from ips.training import build_data, resolve, train
from ips.training.losses import constant_loss, mean_loss
from ips.training.module import Learner
from ips.training.start import start_in_words
from tests.training.test_run import interrupt, metrics, weights
from tests.training.tiny import tiny

CONSOLE = Console(quiet=True)
STEPS = 3  # of an epoch
CHANCE = 2.0


def long(*settings: str) -> Config:
    return tiny("train.epochs=9", "data.train=6", "train.batch=2", *settings)


def lose(monkeypatch: pytest.MonkeyPatch, losses: list[float], lead: float = CHANCE) -> None:
    """Let the epochs of all trainings have these losses, where a constant answer has 2."""

    def start_losses(self: Learner) -> Tensor:
        return torch.tensor([losses[self.current_epoch], lead, CHANCE])

    monkeypatch.setattr(Learner, "start_losses", start_losses)


def choosers(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether single patches chose in each step, filled while training."""
    found: list[bool] = []
    ordinary = Learner.training_step

    def step(self: Learner, batch: object, batch_idx: int) -> Tensor:
        found.append(self.lead_chooses)
        return ordinary(self, batch, batch_idx)  # type: ignore[arg-type]

    monkeypatch.setattr(Learner, "training_step", step)
    return found


def start(run: Path) -> tuple[int | None, list[dict[str, float]]]:
    """The epoch in which a run began, and its starts."""
    found = json.loads((run / "start.json").read_text())
    return found["begun"], found["starts"]


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
def test_no_constant_answer_has_a_lower_loss(weighted: bool, smoothing: float) -> None:
    tasks = {
        "kind": Classification("multiclass", 3),
        "ill": Classification("binary", 2),
        "signs": Classification("multilabel", 2),
    }
    labels = {
        "kind": torch.tensor([0, 0, 0, 1, 2]),
        "ill": torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0]),
        "signs": torch.tensor([[0, 1], [0, 1], [0, 0], [1, 1], [0, 1]]).float(),
    }
    weights = None
    if weighted:
        weights = {
            "kind": torch.tensor([[0.5, 1.0, 3.0]]),
            "ill": torch.tensor([[0.7, 2.0]]),
            "signs": torch.tensor([[0.8, 1.5], [2.0, 0.5]]),
        }
    answers = {name: task.answer_counts(labels[name]) for name, task in tasks.items()}
    found = constant_loss(tasks, answers, weights=weights, smoothing=smoothing)
    constant = {name: torch.zeros(task.outputs, requires_grad=True) for name, task in tasks.items()}
    optimizer = torch.optim.LBFGS(constant.values(), max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        logits = {name: row.expand(5, -1) for name, row in constant.items()}
        value = mean_loss(tasks, logits, labels, weights=weights, smoothing=smoothing)
        value.backward()
        return value

    optimizer.step(loss)
    assert float(found) == pytest.approx(loss().item(), abs=1e-4)


def test_a_constant_answer_to_equal_labels_has_no_loss() -> None:
    task = Classification("multiclass", 2)
    counts = task.answer_counts(torch.tensor([1, 1, 1]))
    assert float(constant_loss({"a": task}, {"a": counts})) == 0


def test_single_patches_choose_until_the_training_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(monkeypatch, [2.0, 1.9, 1.5, *[1.9] * 7])
    found = choosers(monkeypatch)
    train(long(), tmp_path / "run", console=CONSOLE)
    assert found == [True] * 3 * STEPS + [False] * 6 * STEPS


def test_single_patches_do_not_choose_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(monkeypatch, [1.9] * 10)
    found = choosers(monkeypatch)
    train(long(), tmp_path / "run", console=CONSOLE)
    assert found == [True] * 6 * STEPS + [False] * 3 * STEPS


def test_a_training_that_does_not_begin_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(monkeypatch, [2.0] * 6 + [1.0] * 4)
    console = Console(file=io.StringIO(), width=300)
    seen: dict[int, Tensor] = {}

    def watch(epoch: int, net: Net) -> None:
        seen[epoch] = weights(net)

    train(long("train.lr=0.01"), tmp_path / "run", console=console, watch=watch)
    begun, starts = start(tmp_path / "run")
    assert begun == 7
    assert starts == [
        {"epoch": 0, "step": 0, "lr": 1.0},
        {"epoch": 3, "step": 3 * STEPS, "lr": 0.25},
        {"epoch": 6, "step": 6 * STEPS, "lr": 0.0625},
    ]
    rates = [float(row["lr"]) for row in metrics(tmp_path / "run")]
    assert rates[1] > rates[3] > rates[6] > rates[8]  # those after an epoch
    assert rates[3] == pytest.approx(0.25 * rates[0], rel=0.1)
    assert not torch.allclose(seen[3], seen[4], atol=0.05)
    said = console.file.getvalue()  # type: ignore[attr-defined]
    sentence = (
        r"after 3 epochs its loss is 2\.000, that of a constant answer 2\.000, and attention is "
        r"spread over [34]\.\d of 4 patches: it starts again with "
    )
    assert len(re.findall(sentence, said)) == 2
    words = start_in_words(tmp_path / "run/start.json")
    assert words == (
        "the training loss was clearly below a constant answer's from epoch 7 on; started again in "
        "epoch 4 and 7"
    )
    assert "a quarter of the learning rate" in said
    assert "warning" not in said


@pytest.mark.parametrize("step", [3 * STEPS, 4 * STEPS + 1], ids=["before", "after"])
def test_a_run_that_is_killed_at_a_new_start_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    lose(monkeypatch, [2.0] * 3 + [1.0] * 7)
    whole = weights(train(long(), tmp_path / "whole", console=CONSOLE).net)
    interrupt(monkeypatch, lambda: train(long(), tmp_path / "cut", console=CONSOLE), step=step)
    torch.manual_seed(12345)
    cut = weights(train(long(), tmp_path / "cut", resume=True, console=CONSOLE).net)
    assert torch.equal(whole, cut)
    assert start(tmp_path / "whole") == start(tmp_path / "cut")


@pytest.mark.parametrize(
    ("setting", "lead", "starts"),
    [("train.restarts=0", CHANCE, 1), ("train.restarts=1", CHANCE, 2), ("train.seed=0", 1.5, 1)],
    ids=["never", "once", "single patches have begun"],
)
def test_how_often_a_training_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, lead: float, starts: int
) -> None:
    lose(monkeypatch, [2.0] * 10, lead=lead)
    console = Console(file=io.StringIO(), width=300)
    train(long(setting), tmp_path / "run", console=console)
    begun, found = start(tmp_path / "run")
    assert (begun, len(found)) == (None, starts)
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert said.count("warning: the model has not begun to learn") == (lead == CHANCE)
    assert said.count(": try a train.lr below 0.001, a pretrained encoder") == (lead == CHANCE)


@pytest.mark.parametrize(
    ("patience", "restarts", "losses", "epochs"),
    [
        (4, 2, [2.0] * 3 + [1.0] * 7, 3 + 4),
        (2, 2, [2.0] * 3 + [1.0] * 7, 3 + 2),  # reached in the epoch of the new start
        (1, 2, [2.0] * 3 + [1.0] * 7, 3 + 1),  # and before it
        (1, 2, [2.0] * 10, 3 + 3 + 1),
        (1, 1, [2.0] * 10, 3 + 1),
        (1, 0, [2.0] * 10, 1 + 1),
        (3, 2, [1.0] * 10, 1 + 3),
    ],
)
def test_early_stopping_waits_from_the_last_start_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    patience: int,
    restarts: int,
    losses: list[float],
    epochs: int,
) -> None:
    lose(monkeypatch, losses)
    monkeypatch.setattr(Learner, "validation_scores", lambda self: {"majority": 0.5})
    monkeypatch.setattr(Learner, "validation_loss", lambda self: 1.0)
    config = long(f"train.patience={patience}", f"train.restarts={restarts}", "data.validation=3")
    train(config, tmp_path / "run", console=CONSOLE)
    assert len(metrics(tmp_path / "run")) == epochs


def test_more_starts_than_fit_into_a_training_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"train\.restarts=3"):
        tiny("train.restarts=3")


def test_only_methods_that_choose_by_attention_can_be_led(tmp_path: Path) -> None:
    def chosen(*settings: str) -> str | None:
        config = tiny(*settings)
        return resolve(config, build_data(config)).train.start

    assert chosen() == "patches"
    assert chosen("train.start=attention") == "attention"
    assert chosen("method=topmil") == chosen("method=rps") == "attention"
    with pytest.raises(ConfigError, match=r"train\.start=patches with method=rps"):
        train(tiny("method=rps", "train.start=patches"), tmp_path / "run", console=CONSOLE)


def test_runs_of_earlier_versions_continue_as_they_began() -> None:
    values = tiny().model_dump(mode="json")
    del values["train"]["start"], values["train"]["restarts"]
    train = parse_saved_config(values, source="old").train
    assert (train.start, train.restarts) == ("attention", 0)


def test_a_run_without_a_start_file_or_with_a_broken_one_has_no_words(tmp_path: Path) -> None:
    path = tmp_path / "start.json"
    assert start_in_words(path) is None
    path.write_text("[]")
    assert start_in_words(path) is None
    path.write_text('{"begun": null, "starts": [{"epoch": 0, "step": 0, "lr": 1.0}]}')
    assert start_in_words(path) == "not yet: the training loss is near that of a constant answer"
