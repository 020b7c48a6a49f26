"""Encoders by name: ours, timm models and hub models, with weights from various places."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

from ips.errors import ConfigError, MissingPackageError
from ips.nn import FeatureProjector, ResNet, build_encoder, evaluating
from ips.nn.folding import FoldedEncoder
from tests.nn import fake_timm
from tests.nn.fake_timm import Tokens


def test_our_resnets_are_untrained_without_weights() -> None:
    built = build_encoder("thin-resnet", stages=2, width=8, inputs=1, norm=True, pool="max")
    assert isinstance(built.net, ResNet)
    assert (built.inputs, built.dim) == (1, 16)
    assert built.net(torch.rand(2, 1, 32, 32)).shape == (2, 16)
    assert (list(built.mean), list(built.std)) == ([0.0], [1.0])


def test_our_resnets_take_weights_from_a_file(tmp_path: Path) -> None:
    state = build_encoder("thin-resnet", stages=1, width=8).net.state_dict()
    save_file(state, tmp_path / "own.safetensors")
    built = build_encoder("thin-resnet", weights=tmp_path / "own.safetensors", stages=1, width=8)
    assert torch.equal(built.net.state_dict()["conv1.weight"], state["conv1.weight"])


def test_the_projector_takes_features_and_no_weights() -> None:
    built = build_encoder("projector", inputs=12, dim=6)
    assert isinstance(built.net, FeatureProjector)
    assert built.net.eval()(torch.rand(3, 12)).shape == (3, built.dim)
    with pytest.raises(
        ConfigError, match=r"encoder\.weights=imagenet with encoder\.name=projector"
    ):
        build_encoder("projector", weights="imagenet")


@pytest.mark.parametrize(
    ("name", "created"), [("timm:vit", "vit"), ("hub:owner/uni", "hf-hub:owner/uni")]
)
def test_timm_models_come_with_their_own_weights(
    monkeypatch: pytest.MonkeyPatch, name: str, created: str
) -> None:
    models = fake_timm.install(monkeypatch)
    built = build_encoder(name)
    assert models == [(created, {"pretrained": True, "num_classes": 0})]
    assert fake_timm.is_pretrained(built.net)
    assert (built.dim, built.mean, built.std) == (8, fake_timm.MEAN, fake_timm.STD)
    assert not fake_timm.is_pretrained(build_encoder(name, weights="none").net)


def test_the_hub_may_stand_in_name_and_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    models = fake_timm.install(monkeypatch)
    build_encoder("hub:owner/uni", weights="hub:owner/uni")
    assert models == [("hf-hub:owner/uni", {"pretrained": True, "num_classes": 0})]
    with pytest.raises(ConfigError, match=r"hub:owner/uni and .*hub:owner/other are two different"):
        build_encoder("hub:owner/uni", weights="hub:owner/other")
    assert len(models) == 1


def test_a_timm_model_can_have_the_weights_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = fake_timm.install(monkeypatch)
    state = {name: torch.rand_like(t) for name, t in Tokens().state_dict().items()}
    save_file(state | {"head.weight": torch.rand(3)}, tmp_path / "own.safetensors")
    built = build_encoder("timm:vit", weights=tmp_path / "own.safetensors")
    assert models[0][1]["pretrained"] is False
    assert torch.equal(built.net.state_dict()["norm.weight"], state["norm.weight"])
    save_file({"head.weight": torch.rand(3)}, tmp_path / "other.safetensors")
    with pytest.raises(ConfigError, match=r"other\.safetensors: not weights of this encoder"):
        build_encoder("timm:vit", weights=tmp_path / "other.safetensors")


def test_imagenet_is_not_a_name_for_the_weights_of_a_timm_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake_timm.install(monkeypatch)
    with pytest.raises(ConfigError, match=r"imagenet with encoder\.name=timm:vit: leave out"):
        build_encoder("timm:vit", weights="imagenet")


def test_a_timm_model_says_which_patches_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_timm.install(monkeypatch)
    assert build_encoder("timm:any", inputs=1).net.patch_shape == (1, None, None)
    fake_timm.install(monkeypatch, side=224)
    assert build_encoder("timm:fixed").net.patch_shape == (3, 224, 224)


def test_a_missing_timm_or_an_unknown_model_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingPackageError, match=r"timm is not installed: pip install"):
        build_encoder("timm:vit")

    def create_model(name: str, **options: Any) -> nn.Module:
        raise RuntimeError(f"Unknown model ({name})\nand more")

    fake_timm.replace(monkeypatch, create_model)
    with pytest.raises(ConfigError, match=r"timm could not create it \(Unknown model \(vit\)\)"):
        build_encoder("timm:vit")
    with pytest.raises(ConfigError, match="no encoder resnet51: choose one of resnet18"):
        build_encoder("resnet51")


def test_timm_may_not_unpickle_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Malicious:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.touch, (tmp_path / "it-ran",)

    torch.save({"weights": Malicious()}, tmp_path / "model.bin")

    def create_model(name: str, **options: Any) -> nn.Module:
        torch.load(tmp_path / "model.bin", weights_only=False)
        return Tokens()

    fake_timm.replace(monkeypatch, create_model)
    with pytest.raises(ConfigError, match="timm could not create it"):
        build_encoder("hub:owner/repo")
    assert not (tmp_path / "it-ran").exists()


@pytest.mark.parametrize("name", ["thin-resnet", "efficientnet-lite0"])
def test_patches_are_enlarged_before_the_first_layer(name: str) -> None:
    torch.manual_seed(0)
    options: dict[str, Any] = {"stages": 2, "width": 16, "weights": "none"}
    plain, enlarged = build_encoder(name, **options), build_encoder(name, enlarge=1.5, **options)
    enlarged.net.load_state_dict(plain.net.state_dict())  # there are no further weights
    x = torch.rand(2, 3, 32, 32)
    with evaluating(plain.net, enlarged.net):
        large = F.interpolate(x, size=(48, 48), mode="bilinear")
        torch.testing.assert_close(enlarged.net(x), plain.net(large))
        folded = FoldedEncoder(enlarged.net)
        folded.refresh()
        torch.testing.assert_close(folded(x), plain.net(large), rtol=1e-3, atol=1e-4)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """Weights of a thin ResNet of two stages."""
    torch.manual_seed(0)
    path = tmp_path / "weights.pth"
    torch.save(build_encoder("thin-resnet", stages=2, width=8).net.state_dict(), path)
    return path


def test_frozen_stages_stay_as_they_are_in_training(weights: Path) -> None:
    net = build_encoder("thin-resnet", stages=2, width=8, weights=weights, freeze=1).net.train()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1, weight_decay=0.1)
    net(torch.rand(4, 3, 32, 32)).square().sum().backward()
    optimizer.step()
    same = {n.split(".")[0] for n, t in net.state_dict().items() if torch.equal(t, before[n])}
    changed = {
        n.split(".")[0] for n, t in net.state_dict().items() if not torch.equal(t, before[n])
    }
    assert same == {"conv1", "bn1", "layer1"}
    assert changed == {"layer2"}


def test_all_stages_can_be_frozen(weights: Path) -> None:
    net = build_encoder("thin-resnet", stages=2, width=8, weights=weights, freeze=2).net.train()
    assert not net(torch.rand(2, 3, 32, 32)).requires_grad


def test_freezing_needs_pretrained_weights_and_as_many_stages(weights: Path) -> None:
    with pytest.raises(ConfigError, match=r"encoder\.freeze=1 without pretrained weights"):
        build_encoder("thin-resnet", stages=2, freeze=1)
    with pytest.raises(ConfigError, match=r"freeze=3 with an encoder of 2 stages: give at most 2"):
        build_encoder("thin-resnet", stages=2, width=8, weights=weights, freeze=3)
    with pytest.raises(ConfigError, match=r"encoder\.freeze=1 with encoder\.name=timm:vit"):
        build_encoder("timm:vit", freeze=1)


@pytest.mark.parametrize("name", ["projector", "timm:vit", "hub:owner/repo"])
def test_other_encoders_take_patches_as_they_are(name: str) -> None:
    with pytest.raises(ConfigError, match=f"encoder.enlarge=2 with encoder.name={name}"):
        build_encoder(name, enlarge=2)
