"""Settings of the optimisation: accumulation, clipping, rates, balance, augmentation."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import save_file
from torch import Tensor

from ips.config import Config
from ips.config_io import read_yaml
from ips.models import Selected, SelectingNet
from ips.models.outputs import Output
from ips.patches.view import ViewedPatches
from ips.selection import Selection
from ips.training import build_data, build_model, load_model, resolve, train
from ips.training.batches import Batches
from ips.training.module import Learner
from tests.training.own_images import photographs
from tests.training.test_run import interrupt, metrics, weights
from tests.training.tiny import own, tiny

CONSOLE = Console(quiet=True)


def config_of(table: Path, **sections: object) -> Config:
    settings = {"epochs": 2, "batch": 4, "warmup": 0}
    changed = {"patches": {"size": 16, "stride": 8}, "train": settings} | sections
    return own(table, **changed)


def seeds(monkeypatch: pytest.MonkeyPatch, config: Config, run: Path) -> list[int]:
    """The random seeds of the selection, step by step."""
    found: list[int] = []
    ordinary = SelectingNet.select_for_training

    def select(self: SelectingNet, *args: Any, seed: int, **options: Any) -> Any:
        found.append(seed)
        return ordinary(self, *args, seed=seed, **options)

    with monkeypatch.context() as patch:
        patch.setattr(SelectingNet, "select_for_training", select)
        train(config, run, console=CONSOLE)
    return found


def test_several_batches_are_one_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny("train.accumulate=2", "train.epochs=2", "train.warmup=0")
    assert seeds(monkeypatch, config, tmp_path / "whole") == [0, 1, 2, 4, 5, 6]
    assert [row["step"] for row in metrics(tmp_path / "whole")] == ["2", "4"]
    interrupt(monkeypatch, lambda: train(config, tmp_path / "cut", console=CONSOLE), step=2)
    resumed = train(config, tmp_path / "cut", resume=True, console=CONSOLE)
    whole = train(config, tmp_path / "whole", resume=True, console=CONSOLE)
    assert torch.equal(weights(resumed.net), weights(whole.net))


def test_two_halves_of_a_batch_give_its_gradient() -> None:
    config = tiny(
        "encoder.freeze_norm=true", "aggregate.dropout=0", "aggregate.attention_dropout=0"
    )
    data = build_data(config)
    config = resolve(config, data)
    torch.manual_seed(0)
    net = build_model(config).eval()
    learner = Learner(net, config)
    batches = Batches(config, data)

    def gradient(numbers: list[list[int]]) -> Tensor:
        net.zero_grad()
        for part in numbers:
            batch = next(iter(batches._loader(data.train, [part])))
            output = net.forward_train(batch.sources, load="eager", seed=0)
            (learner._loss(output, batch.labels) / len(numbers)).backward()
        return torch.cat([w.grad.flatten() for w in net.parameters() if w.grad is not None])

    torch.testing.assert_close(gradient([[0, 1], [2, 3]]), gradient([[0, 1, 2, 3]]))


def test_the_gradient_is_clipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    norms: list[float] = []
    ordinary = torch.nn.utils.clip_grad_norm_

    def clip(weights: Any, limit: float) -> Any:
        norms.append(limit)
        return ordinary(weights, limit)

    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", clip)
    train(tiny("train.epochs=1", "train.warmup=0", "train.clip=0.25"), tmp_path, console=CONSOLE)
    assert norms == [0.25] * 3


def test_frozen_stages_keep_their_weights_and_the_run_opens_without_their_file(
    tmp_path: Path,
) -> None:
    settings = ["train.epochs=1", "train.warmup=0", "encoder.stages=2"]
    torch.manual_seed(1)
    first = build_model(resolve(tiny(*settings), build_data(tiny(*settings)))).encoder.state_dict()
    save_file(first, tmp_path / "first.safetensors")
    frozen = tiny(
        *settings, f"encoder.weights={tmp_path / 'first.safetensors'}", "encoder.freeze=1"
    )
    train(frozen, tmp_path / "run", console=CONSOLE)
    (tmp_path / "first.safetensors").unlink()
    learnt = load_model(tmp_path / "run").net.encoder.state_dict()
    assert torch.equal(learnt["layer1.0.conv1.weight"], first["layer1.0.conv1.weight"])
    assert not torch.equal(learnt["layer2.0.conv1.weight"], first["layer2.0.conv1.weight"])


def test_the_encoder_may_learn_more_slowly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = build_model(resolve(tiny(), build_data(tiny())))
    assert len(list(start.encoder.parameters())) > 0
    rates: list[list[float]] = []
    ordinary = Learner.on_train_epoch_start

    def record(self: Learner) -> None:
        groups = self.trainer.optimizers[0].param_groups
        assert sum(len(group["params"]) for group in groups) == len(list(self.parameters()))
        rates.append([group["lr"] for group in groups])
        ordinary(self)

    monkeypatch.setattr(Learner, "on_train_epoch_start", record)
    settings = ["train.lr=0.01", "train.warmup=0", "train.epochs=2"]
    train(tiny(*settings, "train.encoder_lr=0.1"), tmp_path / "slow", console=CONSOLE)
    assert all(slow == pytest.approx(0.1 * rate) for rate, slow in rates)
    assert float(metrics(tmp_path / "slow")[0]["lr"]) > 0.001
    rates.clear()
    train(tiny(*settings), tmp_path / "plain", console=CONSOLE)
    assert [len(rate) for rate in rates] == [1, 1]


def test_lopsided_classes_are_weighed_and_that_is_said(tmp_path: Path) -> None:
    table = photographs(tmp_path, count=30, every=5)
    shown = io.StringIO()
    train(config_of(table), tmp_path / "run", console=Console(file=shown, width=200))
    words = "images of low, "
    line = next(line for line in shown.getvalue().splitlines() if words in line)
    assert line.endswith("rare classes count more in the loss (train.balance=lopsided)")
    assert read_yaml(tmp_path / "run/config.yaml")["train"]["balance"] == "lopsided"
    plain = config_of(table, train={"epochs": 2, "batch": 4, "warmup": 0, "balance": "none"})
    shown.truncate(0)
    train(plain, tmp_path / "plain", console=Console(file=shown, width=200))
    assert words not in shown.getvalue()


def test_sampling_draws_rare_classes_more_often(tmp_path: Path) -> None:
    table = photographs(tmp_path, count=60, every=6)
    config = config_of(table, train={"batch": 4, "balance": "sampling"})
    data = build_data(config)
    batches = Batches(resolve(config, data), data)

    def drawn(epoch: int) -> list[int]:
        facts = {"current_epoch": epoch, "global_rank": 0, "world_size": 1}
        batches.trainer = type("Trainer", (), facts)()
        order: Any = batches.train_dataloader().batch_sampler
        return [number for batch in order for number in batch]

    assert drawn(0) == drawn(0) != drawn(1)
    labels = [int(row["grade"]) for row in data.labels["train"]]
    share = [labels[number] == 0 for epoch in range(20) for number in drawn(epoch)]  # "high"
    assert len(drawn(0)) == len(labels)
    assert 0.4 < sum(share) / len(share) < 0.6


def test_a_balanced_and_augmented_run_is_resumed_identically(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = photographs(tmp_path, count=20, every=5)
    for balance in ("lopsided", "sampling"):
        settings = {"epochs": 3, "batch": 4, "warmup": 0, "balance": balance, "smoothing": 0.1}
        config = config_of(table, train=settings)
        whole = train(config, tmp_path / f"{balance}-whole", console=CONSOLE)
        cut = tmp_path / f"{balance}-cut"
        interrupt(monkeypatch, lambda: train(config, cut, console=CONSOLE), step=5)  # noqa: B023
        resumed = train(config, cut, resume=True, console=CONSOLE)
        assert torch.equal(weights(whole.net), weights(resumed.net))


def test_augmentation_is_the_same_however_images_are_loaded(tmp_path: Path) -> None:
    table = photographs(tmp_path)
    settings = {"epochs": 1, "batch": 4, "warmup": 0}
    found = []
    for load, workers in (("lazy", 0), ("eager", 0), ("eager", 1)):
        select = {"keep": 3, "chunk": 4, "load": load}
        config = config_of(table, select=select, train=settings | {"workers": workers})
        found.append(weights(train(config, tmp_path / f"{load}{workers}", console=CONSOLE).net))
    assert torch.allclose(found[0], found[1], atol=1e-5)
    assert torch.equal(found[1], found[2])
    plain = config_of(table, train=settings, augment={"kind": "none"})
    assert not torch.equal(found[0], weights(train(plain, tmp_path / "plain", console=CONSOLE).net))


def test_selection_and_learning_see_the_same_view_of_training_images_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = photographs(tmp_path)
    viewed: list[bool] = []
    ordinary, choose = SelectingNet._forward_eval, SelectingNet.select_for_training

    def select(self: SelectingNet, sources: Any, **options: Any) -> Selected:
        chosen = choose(self, sources, **options)
        assert chosen.patches is not None
        for b, source in enumerate(sources):
            assert isinstance(source, ViewedPatches)
            kept = chosen.selection.indices[b][chosen.selection.mask[b]]
            assert torch.equal(source.read(kept), chosen.patches[b][chosen.selection.mask[b]])
        return chosen

    def predict(self: SelectingNet, sources: Any, *args: Any) -> tuple[Output, Selection]:
        viewed.extend(isinstance(source, ViewedPatches) for source in sources)
        return ordinary(self, sources, *args)

    monkeypatch.setattr(SelectingNet, "select_for_training", select)
    monkeypatch.setattr(SelectingNet, "_forward_eval", predict)
    train(config_of(table), tmp_path / "run", console=CONSOLE)
    assert viewed
    assert not any(viewed)


def test_the_validation_loss_is_logged(tmp_path: Path) -> None:
    table = photographs(tmp_path)
    train(config_of(table), tmp_path / "run", console=CONSOLE)
    assert all(float(row["loss_validation"]) > 0 for row in metrics(tmp_path / "run"))
