"""`encoder.name: timm:...` trains from pixels, and a finished run does not download it again."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from rich.console import Console

from ips.config import Config
from ips.config_io import parse_config
from ips.errors import ConfigError, PatchError
from ips.patches import MemoryPatches
from ips.training import evaluate, load_model, train
from tests.nn import fake_timm

CONSOLE = Console(quiet=True)


def config(size: int = 80, name: str = "timm:vit") -> Config:
    values = {
        "data": {"kind": "road-signs", "width": 320, "height": 240, "train": 4, "test": 2},
        "patches": {"size": size},
        "encoder": {"name": name},
        "select": {"keep": 4, "chunk": 4},
        "aggregate": {"heads": 2},
        "train": {"epochs": 1, "batch": 2, "warmup": 0},
        "tasks": {"sign": {"kind": "multiclass", "classes": 4}},
    }
    return parse_config(values, source="test")


def test_a_timm_encoder_trains_from_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    created = fake_timm.install(monkeypatch, side=80)
    net = train(config(), tmp_path / "run", console=CONSOLE).net
    assert created == [("vit", {"pretrained": True, "num_classes": 0})]
    assert net.normalise.mean.flatten().tolist() == pytest.approx(fake_timm.MEAN)
    assert net.normalise.std.flatten().tolist() == pytest.approx(fake_timm.STD)
    assert not fake_timm.is_pretrained(net.encoder)  # it has learned

    loaded = load_model(tmp_path / "run").net
    assert [options["pretrained"] for _, options in created] == [True, False]
    assert loaded.normalise.mean.flatten().tolist() == pytest.approx(fake_timm.MEAN)
    for name, tensor in net.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)
    evaluate(tmp_path / "run", console=CONSOLE)
    assert not any(options["pretrained"] for _, options in created[1:])


def test_a_fixed_input_size_is_checked_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_timm.install(monkeypatch, side=224)
    with pytest.raises(ConfigError, match=r"only accepts patches of 224 px: set patches\.size=224"):
        train(config(), tmp_path / "run", console=CONSOLE)
    assert not (tmp_path / "run").exists()
    fake_timm.install(monkeypatch, side=80)
    net = train(config(), tmp_path / "run", console=CONSOLE).net
    other = MemoryPatches(torch.zeros(5, 3, 64, 64, dtype=torch.uint8), name="other.png")
    with pytest.raises(PatchError, match=r"other\.png: patches are .* 64 x 64 px.* 80 x 80 px"):
        net.predict(other)


def test_an_unknown_encoder_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"encoder: there is no encoder 'resnet51': choose one"):
        config(name="resnet51")
