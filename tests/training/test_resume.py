"""A training that is killed at any moment ends as if it had not been."""

from __future__ import annotations

import os
import random
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from fuzz.jobs import differences, digest
from ips.config_io import write_yaml
from ips.training import train
from ips.training.checkpoint import read
from ips.training.module import Learner
from tests.command import Outcome
from tests.ranks import fork_server
from tests.training.tiny import TINY, tiny

SETTINGS = ("data.validation=9", "train.result=best", "train.checkpoint_minutes=0")
KILLS = 10


def train_until(run: str, moment: int) -> None:
    """Train, and kill this process at the n-th step, validation step or file."""
    left = moment

    def count(function: Any) -> Any:
        def counted(*args: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args)

        return counted

    Learner.training_step = count(Learner.training_step)  # type: ignore[method-assign]
    Learner.validation_step = count(Learner.validation_step)  # type: ignore[method-assign]
    os.fsync = count(os.fsync)
    os.replace = count(os.replace)
    torch.set_num_threads(1)  # as the tests: with more, sums are rounded otherwise
    train(tiny(*SETTINGS), Path(run), resume=True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("whole")
    train(tiny(*SETTINGS), run)
    return run


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a fork server")
def test_ten_kills_leave_no_trace(whole: Path, tmp_path: Path) -> None:
    context, rng = fork_server(), random.Random(0)
    inside = 0
    for _ in range(KILLS):
        process = context.Process(target=train_until, args=(str(tmp_path), rng.randint(1, 14)))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        last = tmp_path / "checkpoints" / "last.ckpt"
        inside += last.is_file() and read(last)["global_step"] % 3 != 0
    assert inside  # otherwise the moments test too little
    train(tiny(*SETTINGS), tmp_path, resume=True)
    assert differences(digest(tmp_path), digest(whole)) == []


class PowerCutError(Exception):
    """Stands for a power cut."""


def cut(monkeypatch: pytest.MonkeyPatch, method: str, after: int, run: Path, *more: str) -> int:
    """Train until a method was called that many times; return the number of its calls."""
    ordinary, calls = getattr(Learner, method), 0

    def counted(self: Learner, batch: Any, batch_idx: int) -> Any:
        nonlocal calls
        if calls == after:
            raise PowerCutError
        calls += 1
        return ordinary(self, batch, batch_idx)

    with monkeypatch.context() as patch:
        patch.setattr(Learner, method, counted)
        with suppress(PowerCutError):
            train(tiny(*SETTINGS, *more), run, resume=True)
    return calls


@pytest.mark.parametrize("method", ["training_step", "validation_step"])
def test_no_step_is_repeated(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """3 epochs of 3 steps, each followed by 3 steps of validation."""
    for steps in (4, 1, 3):  # twice in the same epoch
        assert cut(monkeypatch, method, steps, tmp_path) == steps
        torch.manual_seed(12345)  # a new process starts with another random state
    assert cut(monkeypatch, method, 100, tmp_path) == 1
    assert differences(digest(tmp_path), digest(whole)) == []


@pytest.mark.parametrize(
    "settings",
    [
        ("train.accumulate=2",),
        ("encoder.freeze_norm=true",),
        ("tasks.multi={kind: multilabel, classes: 10, metric: auc}",),
    ],
    ids=lambda settings: settings[0],
)
def test_every_setting_resumes_within_an_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: tuple[str, ...]
) -> None:
    train(tiny(*SETTINGS, *settings), tmp_path / "whole")
    cut(monkeypatch, "training_step", 5, tmp_path / "cut", *settings)
    cut(monkeypatch, "training_step", 100, tmp_path / "cut", *settings)
    assert differences(digest(tmp_path / "cut"), digest(tmp_path / "whole")) == []


def test_a_damaged_state_within_an_epoch_is_replaced_by_the_one_before(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut(monkeypatch, "training_step", 5, tmp_path)
    last, previous = (tmp_path / "checkpoints" / name for name in ("last.ckpt", "previous.ckpt"))
    assert [read(path)["global_step"] for path in (last, previous)] == [5, 4]
    last.write_bytes(last.read_bytes()[:-1000])
    assert cut(monkeypatch, "training_step", 100, tmp_path) == 5
    assert differences(digest(tmp_path), digest(whole)) == []


def test_the_state_is_saved_within_an_epoch_only_when_it_is_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut(monkeypatch, "training_step", 5, tmp_path, "train.checkpoint_minutes=10")
    assert read(tmp_path / "checkpoints" / "last.ckpt")["global_step"] == 3


def test_sigterm_saves_and_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_yaml(TINY, tmp_path / "tiny.yaml")
    words = "train", tmp_path / "tiny.yaml", "--run", tmp_path / "run"
    train(tiny(), tmp_path / "whole")
    ordinary = Learner.training_step

    def terminated(self: Learner, batch: Any, batch_idx: int) -> torch.Tensor:
        if self.global_step == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        return ordinary(self, batch, batch_idx)

    before = signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patch:
        patch.setattr(Learner, "training_step", terminated)
        outcome = Outcome(*words)
    assert outcome.code == 143
    hint = f"terminated: run the same command with --resume to continue (run folder {words[-1]})"
    assert outcome.err.splitlines()[-1] == hint
    assert signal.getsignal(signal.SIGTERM) == before
    assert read(tmp_path / "run" / "checkpoints" / "last.ckpt")["global_step"] == 5
    train(tiny(), tmp_path / "run", resume=True)
    model = "model.safetensors"
    assert digest(tmp_path / "run")[model] == digest(tmp_path / "whole")[model]
