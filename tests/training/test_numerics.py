"""Losses, gradients and weights that are not finite, and the deterministic mode."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from ips.errors import ConfigError, IPSError
from ips.models import Net
from ips.training import evaluate, train
from ips.training.checkpoint import read
from ips.training.module import Learner
from tests.training.tiny import tiny

STEP = 4  # in the second epoch of three


def step_with(change: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """A training step whose loss is changed in one step."""
    ordinary = Learner.training_step

    def step(self: Learner, batch: Any, batch_idx: int) -> Tensor:
        loss = ordinary(self, batch, batch_idx)
        return change(loss) if self.global_step == STEP else loss

    return step


class _InfiniteGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] * torch.inf


def infinite_gradient(loss: Tensor) -> Tensor:
    changed: Tensor = _InfiniteGradient.apply(loss)  # type: ignore[no-untyped-call]
    return changed


def test_a_loss_that_is_not_finite_names_the_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **options: Any) -> Tensor:
        return torch.tensor(torch.nan, requires_grad=True)

    monkeypatch.setattr("ips.training.module.total_loss", broken)
    with pytest.raises(IPSError) as caught:
        train(tiny(), tmp_path / "run")
    text = str(caught.value)
    assert text.startswith("the loss became nan in step 0, with ")
    assert text.count("megapixel-mnist/") == 4  # the images of the batch, by number
    assert "lower train.lr=0.001" in text


def test_a_gradient_that_is_not_finite_keeps_the_last_good_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    train(tiny(), tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(Learner, "training_step", step_with(infinite_gradient))
        with pytest.raises(IPSError) as caught:
            train(tiny(), run)
    text = str(caught.value)
    assert text.startswith(f"the gradient became infinite or not a number in step {STEP}, with ")
    assert text.count("megapixel-mnist/") == 4
    assert read(run / "checkpoints" / "last.ckpt")["global_step"] == 3
    train(tiny(), run, resume=True)  # the cause is gone
    ends = [load_file(folder / "model.safetensors") for folder in (run, tmp_path / "whole")]
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[1])


def test_weights_that_are_not_finite_are_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ordinary = torch.optim.AdamW.step
    count = 0

    def diverging(self: torch.optim.AdamW, *args: Any, **options: Any) -> object:
        nonlocal count
        count += 1
        result = ordinary(self, *args, **options)
        if count == 6:  # the last step of the second epoch
            with torch.no_grad():
                self.param_groups[0]["params"][0].fill_(torch.inf)
        return result

    monkeypatch.setattr(torch.optim.AdamW, "step", diverging)
    with pytest.raises(IPSError, match=r"the weights became infinite .* epoch 2, net\..*lower"):
        train(tiny(), tmp_path / "run")
    assert read(tmp_path / "run" / "checkpoints" / "last.ckpt")["global_step"] == 3
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_a_prediction_that_is_not_finite_names_the_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tiny("train.epochs=1"), tmp_path / "run")
    ordinary = Net.forward_eval

    def broken(self: Net, sources: Any, **options: Any) -> Any:
        output, selection = ordinary(self, sources, **options)
        output.logits["majority"][1] = torch.nan
        return output, selection

    monkeypatch.setattr(Net, "forward_eval", broken)
    with pytest.raises(IPSError) as caught:
        evaluate(tmp_path / "run")
    assert "not a number for test/1:" in str(caught.value).replace("megapixel-mnist/", "")


class TestDeterministic:
    def test_gives_the_same_weights_on_a_cpu(self, tmp_path: Path) -> None:
        train(tiny("train.epochs=1"), tmp_path / "a")
        train(tiny("train.epochs=1", "train.deterministic=true"), tmp_path / "b")
        a, b = (load_file(tmp_path / name / "model.safetensors") for name in "ab")
        assert all(torch.equal(a[name], b[name]) for name in a)
        assert not torch.are_deterministic_algorithms_enabled()

    def test_names_the_operation_that_prevents_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def change(loss: Tensor) -> Tensor:
            torch.zeros(2).put_(torch.tensor([0]), torch.ones(1))
            return loss

        monkeypatch.setattr(Learner, "training_step", step_with(change))
        with pytest.raises(ConfigError) as caught:
            train(tiny("train.deterministic=true"), tmp_path / "run")
        assert str(caught.value) == (
            "train.deterministic=true: put_ has no deterministic implementation on this device: "
            "train on a CPU, or set train.deterministic=false"
        )
        assert not torch.are_deterministic_algorithms_enabled()
