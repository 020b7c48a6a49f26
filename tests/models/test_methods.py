"""Every method trains, resumes, predicts and explains through the same functions."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor

from ips.config import METHODS, Config
from ips.config_io import parse_config
from ips.errors import ConfigError, PatchError
from ips.explain.figures.attention import draw_attention
from ips.loading import load
from ips.models import LOADS, DPSNet, IPSNet
from ips.patches import MemoryPatches
from ips.predictor import Predictor
from ips.training import build_model, evaluate, resolve, train
from ips.training.data import Data

SIDE, PATCH = 4, 24  # 4 x 4 patches of 24 px


class Bars:
    """Faint noise, and on one patch bright bars: across (0) or upright (1)."""

    def __init__(self, count: int, *, seed: int) -> None:
        self.count, self.seed = count, seed

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[MemoryPatches, dict[str, Tensor]]:
        rng = np.random.default_rng([self.seed, index])
        patches = rng.integers(0, 40, (SIDE * SIDE, 1, PATCH, PATCH), dtype=np.uint8)
        label, place = index % 2, int(rng.integers(SIDE * SIDE))
        bars = np.zeros((PATCH, PATCH), np.uint8)
        bars[rng.integers(6) :: 6] = 255
        bars |= np.roll(bars, 1, axis=0)
        patches[place, 0] |= bars.T if label else bars
        row, column = np.divmod(np.arange(SIDE * SIDE), SIDE)
        coords = np.stack([column, row], axis=1) * PATCH
        source = MemoryPatches(torch.from_numpy(patches), coords=coords, name=f"bars/{index}")
        return source, {"bars": torch.tensor(label)}

    def place(self, index: int) -> int:
        """Which patch has the bars."""
        rng = np.random.default_rng([self.seed, index])
        rng.integers(0, 40, (SIDE * SIDE, 1, PATCH, PATCH), dtype=np.uint8)
        return int(rng.integers(SIDE * SIDE))


TEST = Bars(200, seed=1)
DATA = Data(train=Bars(64, seed=0), test=TEST)
SMALL = Data(train=Bars(24, seed=0), test=Bars(4, seed=1))


def config(method: str, **train: Any) -> Config:
    keep = None if method.startswith("deepmil") else 4
    epochs = 16 if method == "dps" else 8  # its scores learn from noise
    values = {
        "method": method,
        "encoder": {"name": "thin-resnet", "stages": 2, "width": 16, "norm": True, "pool": "max"},
        "patches": {"size": PATCH},
        "select": {"keep": keep, "chunk": 4},
        "dps": {"scale": 0.9, "samples": 100, "sigma": 0.2},
        "aggregate": {"heads": 4, "dropout": 0, "attention_dropout": 0, "position": True},
        "train": {
            "epochs": epochs,
            "batch": 8,
            "lr": 0.003,
            "warmup": 1,
            **train,
        },
        "tasks": {"bars": {"kind": "multiclass", "classes": 2}},
    }
    return parse_config(values, source="bars")


def quiet() -> Console:
    return Console(file=io.StringIO())


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_predicts_and_explains(method: str, tmp_path: Path) -> None:
    train(config(method), tmp_path / "run", console=quiet(), data=DATA)
    scores = evaluate(tmp_path / "run", console=quiet(), data=DATA).scores
    # chance is 0.5; at random the one patch that counts is seen in a quarter of the images
    assert (scores["bars"] or 0) >= (0.56 if method == "rps" else 0.8)

    predictor = load(tmp_path / "run")
    sources = [DATA.test[i][0] for i in range(8)]
    predictions = [predictor.predict(source) for source in sources]
    for source, prediction in zip(sources, predictions, strict=True):
        assert prediction.probabilities["bars"].sum() == pytest.approx(1, abs=1e-5)
        assert prediction.attention.sum() == pytest.approx(1, abs=1e-4)
        assert np.array_equal(prediction.coords, source.coords[prediction.indices.numpy()])
    draw_attention(tmp_path / "attention.png", predictions[:2])
    assert (tmp_path / "attention.png").stat().st_size > 1000
    # It looked where the bars are; but the patch that TopMIL is surest of may as well be one of
    # those without, whose logits it averages in.
    if method not in ("rps", "topmil"):
        test = DATA.test
        assert isinstance(test, Bars)
        found = [int(p.indices[0]) == test.place(i) for i, p in enumerate(predictions)]
        assert sum(found) >= 6


@pytest.mark.parametrize("method", [m for m in METHODS if m != "ips"])
def test_a_resumed_run_equals_an_uninterrupted_one(method: str, tmp_path: Path) -> None:
    short = config(method, epochs=2)
    straight = train(short, tmp_path / "a", console=quiet(), data=SMALL)

    class Interrupted(Bars):
        """Its 40th image is never read: the second epoch ends half-way."""

        reads = 0

        def __getitem__(self, index: int) -> tuple[MemoryPatches, dict[str, Tensor]]:
            self.reads += 1
            if self.reads >= 40:
                raise KeyboardInterrupt
            return super().__getitem__(index)

    broken = Data(train=Interrupted(24, seed=0), test=SMALL.test)
    with pytest.raises(KeyboardInterrupt):
        train(short, tmp_path / "b", console=quiet(), data=broken)
    resumed = train(short, tmp_path / "b", resume=True, console=quiet(), data=SMALL)
    for (name, a), b in zip(
        straight.net.state_dict().items(), resumed.net.state_dict().values(), strict=True
    ):
        assert torch.equal(a, b), name


@pytest.mark.parametrize("method", METHODS)
def test_all_ways_to_load_give_the_same_output(method: str) -> None:
    torch.manual_seed(0)
    net = build_model(resolve(config(method), DATA)).eval()
    sources = [DATA.test[i][0] for i in range(3)]
    answers = [net.forward_eval(sources, load=way, seed=3) for way in LOADS]
    for output, selection in answers[1:]:
        assert torch.equal(selection.indices, answers[0][1].indices)
        assert torch.allclose(output.logits["bars"], answers[0][0].logits["bars"], atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_without_positions(method: str, tmp_path: Path) -> None:
    values = config(method, epochs=1, warmup=0).model_dump(mode="json")
    values["aggregate"]["position"] = False
    placeless = parse_config(values, source="bars")
    model = train(placeless, tmp_path / "run", console=quiet(), data=SMALL)
    assert all(p.isfinite().all() for p in model.net.parameters())


@pytest.mark.parametrize("method", METHODS)
def test_a_batch_may_contain_images_of_different_sizes(method: str) -> None:
    torch.manual_seed(0)
    net = build_model(resolve(config(method), DATA)).eval()
    whole = TEST[0][0]
    half = MemoryPatches(whole.patches[:8], coords=whole.coords[:8], name="upper half")
    together = net.predict_batch([whole, half])
    for alone, prediction in zip([net.predict(whole), net.predict(half)], together, strict=True):
        assert torch.allclose(alone.logits["bars"], prediction.logits["bars"], atol=1e-4)
        assert set(alone.indices.tolist()) == set(prediction.indices.tolist())
    net.train()
    net.forward_train([whole, half], load="eager", seed=0).logits["bars"].sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in net.parameters())
    learning = [net.encoder, net.scorer] if isinstance(net, DPSNet) else [net.encoder]
    for part in learning:
        assert any(p.grad is not None and p.grad.any() for p in part.parameters())


def test_methods_that_need_pixels_refuse_features() -> None:
    features = Data(train=_Features(), test=_Features())
    for method in ("cnn", "dps"):
        values = config(method).model_dump(mode="json")
        values["encoder"] |= {"name": "projector", "dim": 8}
        with pytest.raises(ConfigError, match=f"method={method} needs one of the encoders"):
            build_model(resolve(parse_config(values, source="x"), features))
    net = build_model(resolve(config("cnn"), DATA))
    with pytest.raises(PatchError, match="patches are 8 features, but the model takes images"):
        net.predict(MemoryPatches(torch.rand(5, 8), name="bag"))


class _Features:
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> tuple[MemoryPatches, dict[str, Tensor]]:
        return MemoryPatches(torch.rand(5, 8)), {"bars": torch.tensor(index)}


def test_a_predictor_of_any_method_reports_its_progress() -> None:
    for method in METHODS:
        net = build_model(resolve(config(method), DATA))
        progress = Mock()
        Predictor(net, config(method)).predict(DATA.test[0][0], progress=progress)
        scored = method not in ("rps", "deepmil", "deepmil-plus")  # these score no patches before
        last = SIDE * SIDE if scored else 0
        assert progress.call_args.args == (last, SIDE * SIDE)


def test_random_selection_differs_between_images() -> None:
    net = build_model(resolve(config("rps"), DATA))
    drawn = [tuple(net.predict(DATA.test[i][0]).indices.sort().values.tolist()) for i in range(20)]
    assert len(set(drawn)) > 10
    again = [tuple(net.predict(DATA.test[i][0]).indices.sort().values.tolist()) for i in range(20)]
    assert drawn == again


def test_nothing_is_scored_if_all_patches_are_kept() -> None:
    values = config("ips").model_dump(mode="json")
    values["select"] |= {"keep": SIDE * SIDE, "skip_blank": False}
    net = build_model(resolve(parse_config(values, source="x"), DATA))
    assert isinstance(net, IPSNet)
    net._score = None  # type: ignore[method-assign, assignment]
    whole = TEST[0][0]
    half = MemoryPatches(whole.patches[:8], coords=whole.coords[:8], name="half")
    chosen = net.select_for_training([whole, half], load="eager", seed=0)
    assert chosen.selection.indices[0].tolist() == list(range(SIDE * SIDE))
    assert chosen.selection.mask.sum(dim=1).tolist() == [SIDE * SIDE, 8]
    assert chosen.patches is not None
    assert torch.equal(chosen.patches[1, :8], half.patches)


def test_deepmil_has_its_own_defaults() -> None:
    for method, hidden, head in (("deepmil", 128, []), ("deepmil-plus", 1024, [2048, 512])):
        own = parse_config({"method": method, "tasks": {"a": {}}}, source="x")
        assert (own.select.keep, own.aggregate.hidden, own.aggregate.head) == (None, hidden, head)
        assert own.aggregate.name == "gated-attention"
        assert parse_config(own.model_dump(mode="json"), source="y") == own
    asked = {"method": "deepmil", "select": {"keep": 9}, "tasks": {"a": {}}}
    assert parse_config(asked, source="x").select.keep == 9


def test_a_cnn_refuses_unsuitable_images() -> None:
    net = build_model(resolve(config("cnn"), DATA))
    whole = TEST[0][0]
    colour = MemoryPatches(whole.patches.expand(-1, 3, -1, -1), coords=whole.coords, name="colour")
    with pytest.raises(PatchError, match=r"colour: patches are 3 channels .* takes images of 1"):
        net.predict(colour)
    some = MemoryPatches(whole.patches[:5], coords=whole.coords[:5], name="some")
    with pytest.raises(PatchError, match="some: its 5 patches are not a full grid"):
        net.forward_train([some], load="eager", seed=0)
    with pytest.raises(ConfigError, match=r"single patch \(or image, for a CNN\)"):
        net.train().forward_train([whole], load="eager", seed=0)


def test_a_cnn_takes_a_pretrained_efficientnet() -> None:
    values = config("cnn").model_dump(mode="json")
    values["encoder"] = {"name": "efficientnet-lite0", "stages": 4}
    with pytest.raises(
        ConfigError, match=r"aggregate.position=true with method=cnn adds a channel"
    ):
        resolve(parse_config(values, source="x"), DATA)
    values["aggregate"]["position"] = False
    resolved = resolve(parse_config(values, source="x"), DATA)
    assert str(resolved.encoder.weights) == "imagenet"
    net = build_model(resolved).eval()
    source = TEST[0][0]
    prediction = net.predict(source)
    rows = source.patches.view(SIDE, SIDE, PATCH, PATCH).transpose(1, 2)
    image = rows.reshape(1, 1, SIDE * PATCH, SIDE * PATCH)
    with torch.no_grad():
        expected = net.heads[0](net.encoder((image / 255 - 127 / 255) / (128 / 255)))[0]
    assert torch.allclose(prediction.logits["bars"], expected, atol=1e-4)
    assert prediction.attention.sum() == pytest.approx(1, abs=1e-4)
    assert prediction.attention.max() > prediction.attention.min()
    values["method"], values["aggregate"]["position"] = "dps", True
    with pytest.raises(ConfigError, match=r"method=dps needs .*, not efficientnet-lite0: choose"):
        build_model(resolve(parse_config(values, source="x"), DATA))
