"""The best epoch on the validation images, and early stopping."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rich.console import Console
from safetensors import safe_open

from ips.config import Config
from ips.errors import RunError
from ips.models import Net
from ips.training import RunFolder, evaluate, load_model, train
from ips.training.module import Learner
from tests.training.test_run import PowerCutError, interrupt, metrics, weights
from tests.training.tiny import tiny

CONSOLE = Console(quiet=True)
STEPS = 3  # of an epoch


def best(*settings: str) -> Config:
    return tiny(
        *("data.validation=3", "train.result=best", "train.epochs=4", "train.restarts=0"), *settings
    )


def score_epochs(
    monkeypatch: pytest.MonkeyPatch, scores: list[float], losses: list[float] | None = None
) -> None:
    """Let the epochs of all trainings have these validation scores and losses."""

    def score(self: Learner) -> dict[str, float]:
        return {"majority": scores[self.current_epoch], "multi": math.nan}

    def loss(self: Learner) -> float:
        return 1.0 if losses is None else losses[self.current_epoch]

    monkeypatch.setattr(Learner, "validation_scores", score)
    monkeypatch.setattr(Learner, "validation_loss", loss)


def recorder(found: dict[int, torch.Tensor]) -> Callable[[int, Net], None]:
    def watch(epoch: int, net: Net) -> None:
        found[epoch] = weights(net)

    return watch


@pytest.mark.parametrize(
    ("setting", "scores", "losses", "epoch"),
    [
        ("train.monitor=score", [0.2, 0.8, 0.5, 0.7], [1, 2, 3, 0.5], 2),
        ("train.monitor=score", [0.2, 0.8, 0.8, 0.8], [1, 2, 0.5, 3], 3),
        ("train.monitor=score", [math.nan] * 4, [4, 3, 1, 2], 3),
        ("train.monitor=loss", [0.2, 0.8, 0.5, 0.7], [1, 2, 3, 0.5], 4),
    ],
    ids=["score", "equal scores", "undefined scores", "loss"],
)
def test_the_model_is_that_of_the_best_epoch(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    setting: str,
    scores: list[float],
    losses: list[float],
    epoch: int,
) -> None:
    score_epochs(monkeypatch, scores, losses)
    epochs: dict[int, torch.Tensor] = {}
    model = train(best(setting), tmp_path, console=CONSOLE, watch=recorder(epochs))
    assert torch.equal(weights(model.net), epochs[epoch])
    assert torch.equal(weights(load_model(tmp_path).net), epochs[epoch])
    found = RunFolder(tmp_path).model_epoch()
    assert found is not None
    assert (found.epoch, found.epochs) == (epoch, 4)


def test_the_epoch_is_printed_and_stored_beside_the_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score_epochs(monkeypatch, [0.2, 0.8125, 0.5, 0.7])
    shown = io.StringIO()
    train(best(), tmp_path, console=Console(file=shown, width=200))
    words = "the model is that of epoch 2 of 4, with the best validation score (0.812)"
    assert words in shown.getvalue()
    evaluate(tmp_path, console=CONSOLE)
    model = json.loads((tmp_path / "test.json").read_text())["majority"]["model"]
    assert model == {"epoch": 2, "epochs": 4, "chosen_by": "score", "value": 0.8125}
    path = tmp_path / "checkpoints" / "best-epoch-2.safetensors"
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["config"])
    assert (header["epoch"], header["score"], header["loss"]) == (2, 0.8125, 1.0)


def test_the_last_epoch_stays_the_default_for_data_of_the_paper(tmp_path: Path) -> None:
    train(tiny("data.validation=3"), tmp_path, console=CONSOLE)
    assert str(RunFolder(tmp_path).model_epoch()) == "epoch 3 of 3, the last"
    assert not RunFolder(tmp_path).all_best()


@pytest.mark.parametrize("scores", [[0.2, 0.8, 0.5, 0.7], [0.2, 0.3, 0.4, 0.5]])
@pytest.mark.parametrize("step", [STEPS + 1, 2 * STEPS, 3 * STEPS + 1])
def test_a_resumed_run_ends_with_the_same_best_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scores: list[float], step: int
) -> None:
    score_epochs(monkeypatch, scores)
    whole = train(best(), tmp_path / "whole", console=CONSOLE)
    interrupt(monkeypatch, lambda: train(best(), tmp_path / "cut", console=CONSOLE), step=step)
    resumed = train(best(), tmp_path / "cut", resume=True, console=CONSOLE)
    assert torch.equal(weights(whole.net), weights(resumed.net))
    folders = [RunFolder(tmp_path / name) for name in ("whole", "cut")]
    assert folders[0].model_epoch() == folders[1].model_epoch()
    assert folders[0].model.read_bytes() == folders[1].model.read_bytes()
    names = [sorted(path.name for path in folder.all_best()) for folder in folders]
    assert names[0] == names[1]


def test_a_run_that_is_killed_between_weights_and_checkpoint_repeats_the_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score_epochs(monkeypatch, [0.5, 0.3, 0.8, 0.7])
    whole = train(best(), tmp_path / "whole", console=CONSOLE)
    run = tmp_path / "cut"

    def kill(epoch: int, net: Net) -> None:  # after the weights, before the checkpoint
        if epoch == 3:
            raise PowerCutError

    with pytest.raises(PowerCutError):
        train(best(), run, console=CONSOLE, watch=kill)
    assert RunFolder(run).best(3).is_file()
    # The repeated epoch may be worse on another machine: then the best is still the first.
    score_epochs(monkeypatch, [0.5, 0.3, 0.4, 0.2])
    other = train(best(), run, resume=True, console=CONSOLE)
    found = RunFolder(run).model_epoch()
    assert found is not None
    assert found.epoch == 1
    assert not torch.equal(weights(other.net), weights(whole.net))


def test_both_checkpoints_keep_their_best_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score_epochs(monkeypatch, [0.5, 0.6, 0.7, 0.4])
    whole = train(best(), tmp_path / "whole", console=CONSOLE)
    run = tmp_path / "cut"
    interrupt(monkeypatch, lambda: train(best(), run, console=CONSOLE), step=3 * STEPS)
    assert {path.name for path in RunFolder(run).all_best()} == {
        f"best-epoch-{epoch}.safetensors" for epoch in (2, 3)
    }
    RunFolder(run).checkpoint.write_bytes(b"damaged")
    resumed = train(best(), run, resume=True, console=CONSOLE)
    assert torch.equal(weights(whole.net), weights(resumed.net))


def test_damaged_weights_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    score_epochs(monkeypatch, [0.8, 0.5, 0.5, 0.5], [1, 2, 3, 4])
    interrupt(monkeypatch, lambda: train(best(), tmp_path, console=CONSOLE), step=2 * STEPS)
    path = RunFolder(tmp_path).best(1)
    path.write_bytes(path.read_bytes()[:-5] + b"wrong")
    with pytest.raises(RunError, match=r"best-epoch-1\.safetensors: damaged .* from the start"):
        train(best(), tmp_path, resume=True, console=CONSOLE)


def test_training_stops_after_epochs_without_improvement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score_epochs(monkeypatch, [0.5, 0.6, 0.4, 0.6, 0.9, 1.0], [1.0, 1, 1, 2, 1, 1])
    config = best("train.epochs=6", "train.patience=2")
    shown = io.StringIO()
    model = train(config, tmp_path / "run", console=Console(file=shown, width=200))
    assert len(metrics(tmp_path / "run")) == 4
    assert "epoch 2 of 4, with the best" in shown.getvalue()
    assert "stopped early, after 2 epochs without a better validation score" in shown.getvalue()
    # Killed after it had stopped, it does not go on.
    RunFolder(tmp_path / "run").model.unlink()
    again = train(config, tmp_path / "run", resume=True, console=CONSOLE)
    assert len(metrics(tmp_path / "run")) == 4
    assert torch.equal(weights(again.net), weights(model.net))


def test_the_last_epoch_may_be_wanted_with_early_stopping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score_epochs(monkeypatch, [0.5, 0.4, 0.4, 0.6])
    epochs: dict[int, torch.Tensor] = {}
    config = best("train.result=last", "train.patience=1")
    model = train(config, tmp_path, console=CONSOLE, watch=recorder(epochs))
    assert list(epochs) == [1, 2]
    assert torch.equal(weights(model.net), epochs[2])
    assert str(RunFolder(tmp_path).model_epoch()) == "epoch 2 of 2, the last"
