"""Attention that learns from stored embeddings before the training."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from torch import Tensor

from ips.config import Config
from ips.errors import ConfigError
from ips.models import SelectingNet
from ips.nn.weights_file import write_weights
from ips.progress import progress_bar
from ips.training import build_data, build_model, feature_start, resolve, train
from ips.training.feature_start import FeatureStart, begin_with_features
from ips.training.score_store import ScoreStore
from tests.training.own_images import add_column, photographs
from tests.training.test_run import PowerCutError, interrupt, metrics, weights
from tests.training.test_start import choosers, start
from tests.training.tiny import own

CONSOLE = Console(quiet=True)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """24 photographs to train on, half of them brighter, and a pretrained encoder."""
    table = photographs(tmp_path, count=30)
    add_column(table, "split", ["train"] * 24 + ["validation"] * 2 + ["test"] * 4)
    return with_start(tmp_path, table, "features")


def with_start(folder: Path, table: Path, way: str, **more: Any) -> Config:
    # its weights are random, and so are the statistics of its norms
    encoder = {"name": "thin-resnet", "stages": 1, "width": 8, "freeze_norm": False}
    plain = own(table, encoder=encoder)
    net = build_model(resolve(plain, build_data(plain)))
    write_weights(folder / "encoder.safetensors", net.encoder.state_dict(), config={})
    encoder["weights"] = str(folder / "encoder.safetensors")
    settings = {"epochs": 3, "batch": 4, "warmup": 0, "lr": 0.01, "start": way, **more}
    config = own(table, encoder=encoder, train=settings, augment={"kind": "none"})
    return resolve(config, build_data(config))


def begin(config: Config, folder: Path) -> tuple[SelectingNet, FeatureStart]:
    torch.manual_seed(0)
    net = build_model(config)
    assert isinstance(net, SelectingNet)
    data, progress = build_data(config).train, progress_bar(None)
    return net, begin_with_features(net, config, data, folder=folder, progress=progress)


def test_all_but_the_encoder_learns(config: Config, tmp_path: Path) -> None:
    torch.manual_seed(0)
    before = build_model(config)
    random = torch.get_rng_state()
    net, found = begin(config, tmp_path / "checkpoints")
    assert found.images == 24
    assert found.begun
    assert found.share < 0.5
    assert torch.equal(weights(net.encoder), weights(before.encoder))
    assert not torch.equal(weights(net.aggregator), weights(before.aggregator))  # type: ignore[arg-type]
    assert torch.equal(torch.get_rng_state(), random)
    assert net.training
    assert all(w.grad is None for w in net.encoder.parameters())
    assert not list((tmp_path / "checkpoints").iterdir())


def test_attention_finds_what_is_on_few_patches(tmp_path: Path) -> None:
    """Of 16 patches, one is bright on every second image."""
    table = photographs(tmp_path, count=46)
    for number in range(46):
        pixels = np.random.default_rng(number).integers(0, 60, (64, 64, 3), dtype=np.uint8)
        row, column = divmod(number * 7 % 16, 4)
        if number % 2 == 0:
            pixels[16 * row : 16 * row + 16, 16 * column : 16 * column + 16] += 190
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    add_column(table, "split", ["train"] * 40 + ["test"] * 4 + ["validation"] * 2)
    config = with_start(tmp_path, table, "features")
    net, found = begin(config, tmp_path / "checkpoints")
    assert found.begun
    test = build_data(config).test
    sources = [test[number][0] for number in (0, 2)]  # images 40 and 42
    kept = net.select(sources, load="lazy").selection
    for source, indices, mask, number in zip(
        sources, kept.indices, kept.mask, (40, 42), strict=True
    ):
        bright = divmod(number * 7 % 16, 4)
        corners = [(y // 16, x // 16) for x, y in source.coords[indices[mask].numpy()].tolist()]
        assert bright in corners


def test_a_learning_rate_that_is_too_high_for_attention_is_lowered(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config.train.model_copy(update={"lr": 0.1})
    config = config.model_copy(update={"train": settings})
    _, lowered = begin(config, tmp_path / "lowered")
    monkeypatch.setattr(feature_start, "_RATES", (1.0,))
    _, alone = begin(config, tmp_path / "alone")
    assert lowered.begun
    assert lowered.share < 0.8 * alone.share


def test_without_success_nothing_has_changed(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    before = build_model(config)
    monkeypatch.setattr(feature_start, "_share", lambda *_: 0.99)
    net, found = begin(config, tmp_path / "checkpoints")
    assert not found.begun
    assert "classifiers of single patches lead the start" in str(found)
    assert torch.equal(weights(net), weights(before))


def test_an_interrupted_start_goes_on(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed, _ = begin(config, tmp_path / "undisturbed")
    ordinary, calls = feature_start._embeddings, []

    def counted(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 6:
            raise PowerCutError
        return ordinary(*arguments)

    monkeypatch.setattr(feature_start, "_embeddings", counted)
    with pytest.raises(PowerCutError):
        begin(config, tmp_path / "checkpoints")
    net, _ = begin(config, tmp_path / "checkpoints")
    assert len(calls) == 24 + 1
    assert torch.equal(weights(net), weights(undisturbed))


def test_embeddings_of_other_settings_are_not_used(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "checkpoints"
    with monkeypatch.context() as patch:
        patch.setattr(feature_start, "_learn", stop)
        with pytest.raises(PowerCutError):
            begin(config, folder)
    assert len(list(folder.glob("embeddings-*/*.npz"))) == 24
    other = config.model_copy(update={"patches": config.patches.model_copy(update={"size": 8})})
    net, _ = begin(other, folder)
    undisturbed, _ = begin(other, tmp_path / "undisturbed")
    assert torch.equal(weights(net), weights(undisturbed))
    assert not list(folder.iterdir())


def stop(*_: object) -> None:
    raise PowerCutError


def test_embeddings_of_other_files_are_not_used(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run" / "checkpoints"
    with monkeypatch.context() as patch:
        patch.setattr(feature_start, "_learn", stop)
        with pytest.raises(PowerCutError):
            train(config, tmp_path / "run", console=CONSOLE)
    (before,) = folder.glob("embeddings-*")
    os.utime(tmp_path / "3.png", (1, 1))
    with monkeypatch.context() as patch:
        patch.setattr(feature_start, "_learn", stop)
        with pytest.raises(PowerCutError):
            train(config, tmp_path / "run", resume=True, console=CONSOLE)
    (after,) = folder.glob("embeddings-*")
    assert after != before


def test_blank_patches_are_left_out(tmp_path: Path) -> None:
    table = photographs(tmp_path, count=30)
    add_column(table, "split", ["train"] * 24 + ["validation"] * 2 + ["test"] * 4)
    for number in range(24):
        pixels = np.zeros((32, 32, 3), dtype=np.uint8)
        if number:  # the first one is blank as a whole
            pixels[:16, 16:] = 100 * (number % 2) + np.arange(16, dtype=np.uint8)[None, :, None]
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    config = with_start(tmp_path, table, "features")
    select = config.select.model_copy(update={"skip_blank": True})
    config = config.model_copy(update={"select": select})
    net = build_model(config)
    assert isinstance(net, SelectingNet)
    data, progress = build_data(config).train, progress_bar(None)
    store = ScoreStore(tmp_path / "scores", images=len(data), channels=net.channels)
    folder = tmp_path / "embeddings"
    found = begin_with_features(net, config, data, folder=folder, progress=progress, store=store)
    assert found.begun
    assert store.begin(2)
    scores = store.get(3)
    assert scores is not None
    assert scores.logits.isfinite().all(dim=1).tolist() == [False, True, False, False]


def test_a_constant_answer_learns_nothing(config: Config) -> None:
    """Also if the last batch of the images held out is smaller than the others."""
    for labels in ([0, 0, 1, 1, 0], [0, 0, 0, 0, 1]):
        truth = [{"grade": torch.tensor(label)} for label in labels]
        rates = torch.bincount(torch.tensor(labels)).float() / len(labels)

        def answers(net: Any, bags: Any, rates: Tensor = rates) -> Any:
            stacked = {"grade": torch.stack([bag["grade"] for bag in bags])}
            logits = {"grade": rates.log().expand(len(bags), -1)}
            return SimpleNamespace(logits=logits), stacked

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(feature_start, "_answers", answers)
            net: Any = build_model(config)
            share = feature_start._share(net, config, truth, None)  # type: ignore[arg-type]
        assert share == pytest.approx(1.0, abs=1e-5)


def test_images_of_one_label_do_not_tell() -> None:
    found = FeatureStart(30, 0, math.inf)
    assert not found.begun
    assert "those held out all have the same label, so classifiers of single patches" in str(found)


def cached(config: Config) -> Config:
    """The config with more patches per image, of which an epoch scores about a half again."""
    select = config.select.model_copy(update={"keep": 2, "refresh": 0.1, "recall": 0.01})
    patches = config.patches.model_copy(update={"size": 8})
    return config.model_copy(update={"select": select, "patches": patches})


def test_the_scores_of_the_embeddings_are_those_of_a_full_pass(
    config: Config, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    net = build_model(config)
    assert isinstance(net, SelectingNet)
    data, progress = build_data(config).train, progress_bar(None)
    store = ScoreStore(tmp_path / "scores", images=len(data), channels=net.channels)
    begin_with_features(
        net, config, data, folder=tmp_path / "embeddings", progress=progress, store=store
    )
    assert store.filled
    assert store.begin(2)
    for number in (0, 23):
        table = net.empty_table(data[number][0])
        net.select([data[number][0]], tables=[table])
        found = store.get(number)
        assert found is not None
        assert found.epochs.eq(1).all()
        torch.testing.assert_close(found.logits, table.logits, rtol=2e-3, atol=2e-3)  # half


def test_without_success_no_scores_are_stored(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feature_start, "_share", lambda *_: 0.99)
    net = build_model(config)
    assert isinstance(net, SelectingNet)
    store = ScoreStore(tmp_path, images=24, channels=net.channels)
    data, progress = build_data(config).train, progress_bar(None)
    begin_with_features(net, config, data, folder=tmp_path, progress=progress, store=store)
    assert not store.filled


def test_of_a_large_image_a_random_part_is_embedded(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ordinary = feature_start._answers
    seen: list[list[int]] = []

    def watched(net: SelectingNet, bags: Any) -> Any:
        seen.extend(bag.sampled.tolist() for bag in bags)
        return ordinary(net, bags)

    monkeypatch.setattr(feature_start, "_answers", watched)
    monkeypatch.setattr(feature_start, "PATCHES", 3)
    begin(config, tmp_path / "checkpoints")
    assert all(len(indices) == 3 and indices == sorted(indices) for indices in seen)
    assert len({tuple(indices) for indices in seen}) > 3  # not the same part of every image


class TestTraining:
    def test_attention_selects_from_the_first_step(
        self, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        led, said = choosers(monkeypatch), io.StringIO()
        train(config, tmp_path / "run", console=Console(file=said, width=200))
        assert not any(led)
        assert "attention learnt from the embeddings of 24 images" in said.getvalue()
        assert start(tmp_path / "run")[0] is not None

    def test_the_first_epoch_scores_some_patches_if_scores_are_cached(
        self, config: Config, tmp_path: Path
    ) -> None:
        train(cached(config), tmp_path / "run", console=CONSOLE)
        scored = [float(row["scored"]) for row in metrics(tmp_path / "run")]
        assert scored[0] < 0.8
        assert scored[-1] == 1

    @pytest.mark.parametrize("step", [4, 12], ids=["in the first epoch", "at the end of one"])
    def test_a_resumed_run_with_cached_scores_ends_with_the_same_weights(
        self, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
    ) -> None:
        every = config.train.model_copy(update={"checkpoint_minutes": 0})
        config = cached(config.model_copy(update={"train": every}))
        whole = train(config, tmp_path / "whole", console=CONSOLE).net
        run = tmp_path / "run"
        interrupt(monkeypatch, lambda: train(config, run, console=CONSOLE), step=step)
        resumed = train(config, run, resume=True, console=CONSOLE).net
        assert torch.equal(weights(resumed), weights(whole))

    def test_few_images_are_not_embedded(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        table = photographs(tmp_path, count=12)
        add_column(table, "split", ["train"] * 8 + ["validation"] * 2 + ["test"] * 2)
        config = with_start(tmp_path, table, "features", epochs=1)
        monkeypatch.setattr(feature_start, "_embeddings", stop)
        said = io.StringIO()
        train(config, tmp_path / "run", console=Console(file=said, width=200))
        assert "needs at least 10 training images, and there are 8" in said.getvalue()

    def test_patches_lead_where_nothing_was_learnt(
        self, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(feature_start, "_share", lambda *_: 1.0)
        led = choosers(monkeypatch)
        train(config, tmp_path / "run", console=CONSOLE)
        assert led[0]

    @pytest.mark.parametrize("step", [4, 12], ids=["in an epoch", "at the end of one"])
    def test_a_resumed_run_ends_with_the_same_weights(
        self, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
    ) -> None:
        every = config.train.model_copy(update={"checkpoint_minutes": 0})
        config = config.model_copy(update={"train": every})
        whole = train(config, tmp_path / "whole", console=CONSOLE).net
        run = tmp_path / "run"
        interrupt(monkeypatch, lambda: train(config, run, console=CONSOLE), step=step)
        monkeypatch.setattr(feature_start, "_embeddings", stop)
        resumed = train(config, run, resume=True, console=CONSOLE).net
        assert torch.equal(weights(resumed), weights(whole))
        assert start(run) == start(tmp_path / "whole")


def choices(config: Config) -> Iterator[str | None]:
    for method in ("ips", "topmil", "deepmil"):
        yield resolve(config.model_copy(update={"method": method}), build_data(config)).train.start


def test_it_is_the_default_with_a_pretrained_encoder(config: Config, tmp_path: Path) -> None:
    open_ = config.model_copy(update={"train": config.train.model_copy(update={"start": None})})
    assert list(choices(open_)) == ["features", "attention", "attention"]
    norm = config.encoder.model_copy(update={"norm": True})
    assert next(choices(open_.model_copy(update={"encoder": norm}))) == "patches"
    fresh = config.encoder.model_copy(update={"weights": None})
    assert next(choices(open_.model_copy(update={"encoder": fresh}))) == "patches"


def test_statistics_of_norms_are_frozen_by_default(config: Config) -> None:
    def frozen(start: str, given: bool | None = None) -> bool | None:
        encoder = config.encoder.model_copy(update={"freeze_norm": given})
        train = config.train.model_copy(update={"start": start})
        some = config.model_copy(update={"encoder": encoder, "train": train})
        return resolve(some, build_data(some)).encoder.freeze_norm

    assert frozen("features") is True
    assert frozen("features", given=False) is False
    assert frozen("patches") is False
    assert frozen("patches", given=True) is True
    norm = config.encoder.model_copy(update={"norm": True, "freeze_norm": None})
    some = config.model_copy(update={"encoder": norm})
    assert resolve(some, build_data(some)).encoder.freeze_norm is False  # it has yet to learn


@pytest.mark.parametrize("method", ["topmil", "ips"])
def test_what_cannot_begin_so_is_refused(config: Config, tmp_path: Path, method: str) -> None:
    encoder = config.encoder.model_copy(update={"weights": None})
    config = config.model_copy(update={"method": method, "encoder": encoder})
    message = "no pretrained weights" if method == "ips" else "does not choose patches by attention"
    with pytest.raises(ConfigError, match=message):
        train(config, tmp_path / "run", console=CONSOLE)
