"""Encoders of presets: small networks in the layout of the public ones, loaded from files.

timm is a stand-in. The tests of transformers need the package itself and are skipped without it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from ips.errors import ConfigError, MissingPackageError
from ips.slides.foundation import build_preset
from ips.slides.presets import PRESETS
from tests.nn import fake_timm

VIRCHOW2 = PRESETS["virchow2"]
PIXELS = torch.rand(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))


class GatedRepoError(Exception):
    pass


class EntryNotFoundError(Exception):
    pass


def hub(patch: pytest.MonkeyPatch, download: Callable[[str, str], str]) -> None:
    module = ModuleType("huggingface_hub")
    module.hf_hub_download = download  # type: ignore[attr-defined]
    patch.setitem(sys.modules, "huggingface_hub", module)


@pytest.fixture
def timm(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    return fake_timm.install(monkeypatch)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Weights of the stand-in."""
    torch.manual_seed(1)
    save_file(fake_timm.Tokens().state_dict(), tmp_path / "model.safetensors")
    return tmp_path


def features(net: nn.Module) -> Tensor:
    with torch.no_grad():
        result: Tensor = net.eval()(PIXELS)
    return result


class TestTimm:
    def test_builds_the_network_of_the_preset(
        self, timm: list[tuple[str, Any]], folder: Path
    ) -> None:
        build_preset(VIRCHOW2, weights=str(folder))
        ((name, options),) = timm
        assert name == "vit_huge_patch14_224"
        assert options == {
            "pretrained": False,  # timm itself downloads nothing
            "num_classes": 0,
            "img_size": 224,
            "dynamic_img_size": True,
            "init_values": 1e-5,
            "mlp_ratio": 5.3375,
            "reg_tokens": 4,
            "mlp_layer": nn.Identity,  # the class of the stand-in
            "act_layer": "silu",
        }

    def test_features_are_the_tokens_that_the_preset_names(
        self, timm: list[tuple[str, Any]], folder: Path
    ) -> None:
        both = features(build_preset(VIRCHOW2, weights=str(folder)))
        first = features(build_preset(PRESETS["uni"], weights=str(folder)))
        torch.manual_seed(1)
        net = fake_timm.Tokens()
        quarters = PIXELS.reshape(2, 3, 2, 112, 2, 112).mean(dim=(3, 5)).flatten(2)  # (2, 3, 4)
        patches = net.norm(quarters.transpose(1, 2)).mean(dim=1)  # without the registers
        torch.testing.assert_close(first, net(PIXELS).detach())
        torch.testing.assert_close(both, torch.cat([net(PIXELS), patches], dim=1).detach())

    def test_weights_of_a_folder_a_file_and_the_hub(
        self, timm: list[tuple[str, Any]], folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = []

        def download(repo: str, file: str) -> str:
            asked.append((repo, file))
            return str(folder / "model.safetensors")

        hub(monkeypatch, download)
        expected = features(build_preset(VIRCHOW2, weights=str(folder)))
        places = (
            None,
            str(folder / "model.safetensors"),
            "hub:me/copy",
            "hub:me/copy/a.safetensors",
        )
        for place in places:
            assert torch.equal(features(build_preset(VIRCHOW2, weights=place)), expected)
        assert asked == [
            ("paige-ai/Virchow2", "model.safetensors"),
            ("me/copy", "model.safetensors"),
            ("me/copy", "a.safetensors"),
        ]
        with pytest.raises(ConfigError, match="only safetensors are loaded from the hub"):
            build_preset(VIRCHOW2, weights="hub:me/copy/pytorch_model.bin")
        assert len(asked) == 3
        assert not torch.equal(features(build_preset(VIRCHOW2, weights="none")), expected)

    @pytest.mark.parametrize(
        "change",
        [
            lambda state: state.pop("norm.bias"),
            lambda state: state.update({"reg_token": torch.zeros(1, 4, 8)}),
            lambda state: state.update({"norm.bias": torch.zeros(9)}),
        ],
    )
    def test_other_weights_are_refused(
        self,
        timm: list[tuple[str, Any]],
        folder: Path,
        change: Callable[[dict[str, Tensor]], object],
    ) -> None:
        state = dict(fake_timm.Tokens().state_dict())
        change(state)
        save_file(state, folder / "model.safetensors")
        said = r"not the weights of virchow2: 1 tensors are missing, left over or of another shape"
        with pytest.raises(ConfigError, match=said):
            build_preset(VIRCHOW2, weights=str(folder))

    def test_a_folder_of_pickles_is_not_read(
        self, timm: list[tuple[str, Any]], tmp_path: Path
    ) -> None:
        torch.save(fake_timm.Tokens().state_dict(), tmp_path / "pytorch_model.bin")
        with pytest.raises(ConfigError, match=r"model\.safetensors: there is no such file"):
            build_preset(VIRCHOW2, weights=str(tmp_path))
        # only tensors are read from a file that was named
        build_preset(VIRCHOW2, weights=str(tmp_path / "pytorch_model.bin"))

    @pytest.mark.parametrize(
        ("error", "said"),
        [
            (GatedRepoError("401"), r"asks for a login\): ask for access .* `hf auth login`"),
            (EntryNotFoundError("404"), r"only safetensors .* pytorch_model.bin yourself"),
            (OSError("no route"), r"\(no route\): download the repository yourself"),
        ],
    )
    def test_a_failed_download_names_the_remedy(
        self,
        timm: list[tuple[str, Any]],
        monkeypatch: pytest.MonkeyPatch,
        error: Exception,
        said: str,
    ) -> None:
        def download(repo: str, file: str) -> str:
            raise error

        hub(monkeypatch, download)
        with pytest.raises(ConfigError, match=f"--encoder virchow2: .*{said}") as caught:
            build_preset(VIRCHOW2)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["uni", "phikon"])
def test_a_missing_package_is_named_with_the_command(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = PRESETS[name].library
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackageError, match=rf"pip install '.*\[{package}\]'"):
        build_preset(PRESETS[name])


SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "image_size": 224,
    "patch_size": 56,
    "mlp_ratio": 2,
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
class TestTransformers:
    @pytest.fixture(scope="class")
    def library(self) -> Any:
        return pytest.importorskip("transformers")

    @pytest.mark.parametrize("name", ["phikon", "phikon-v2", "hibou-b", "midnight-12k"])
    def test_a_small_model_in_the_same_layout(
        self, library: Any, tmp_path: Path, name: str
    ) -> None:
        kind = getattr(library, PRESETS[name].model)
        torch.manual_seed(0)
        small = kind(kind.config_class(**SMALL)).eval()
        small.save_pretrained(tmp_path)
        built = build_preset(PRESETS[name], weights=str(tmp_path))
        with torch.no_grad():
            tokens = small(pixel_values=PIXELS).last_hidden_state
        assert tokens.shape == (2, 17 + (4 if name == "hibou-b" else 0), 16)
        expected = tokens[:, 0]
        if name == "midnight-12k":
            expected = torch.cat([expected, tokens[:, 1:].mean(dim=1)], dim=1)
        torch.testing.assert_close(features(built), expected)

    def test_the_names_on_the_hub(self, library: Any, tmp_path: Path) -> None:
        """Hibou's config and tensors as its repository has them, against the formulas."""
        config = SMALL | {
            "model_type": "dinov2",
            "auto_map": {"AutoModel": "modeling_dinov2.Dinov2ModelWithRegisters"},
            "attn_implementation": "someone/kernels",
            "num_register_tokens": 4,
            "use_swiglu_ffn": True,
        }
        state = hibou_state()
        save_file(state, tmp_path / "model.safetensors")
        (tmp_path / "config.json").write_text(json.dumps(config))
        built = build_preset(PRESETS["hibou-b"], weights=str(tmp_path))
        torch.testing.assert_close(features(built), hibou(state, PIXELS), atol=1e-5, rtol=1e-5)

    def test_other_weights_and_configs_are_refused(
        self, library: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        preset = PRESETS["hibou-b"]
        save_file(hibou_state(), tmp_path / "model.safetensors")
        config = tmp_path / "config.json"
        with pytest.raises(ConfigError, match=r"config\.json: there is no such file"):
            build_preset(preset, weights=str(tmp_path))
        for text, said in (
            ("[", r"config\.json: .*download it again"),
            ("[1]", r"config\.json: .*not a mapping.*download it again"),
            ('{"hidden_size": "wide"}', "hibou-b: transformers could not build it"),
            (json.dumps(SMALL), "not the weights of hibou-b: .* of another shape"),
        ):
            config.write_text(text)
            with pytest.raises(ConfigError, match=said):
                build_preset(preset, weights=str(tmp_path))
        plain = replace(preset, model="Dinov2Model")  # it has no place for the register tokens
        config.write_text(json.dumps(SMALL | {"use_swiglu_ffn": True}))
        with pytest.raises(ConfigError, match=r"not the weights of hibou-b: 1 tensors .*register"):
            build_preset(plain, weights=str(tmp_path))
        assert capfd.readouterr() == ("", "")


D, WIDE = 16, 24  # embedding, and hidden size of SwiGLU: 16 * 2 * 2 / 3, rounded up to eights


def hibou_state() -> dict[str, Tensor]:
    """Random tensors with the names of histai/hibou-b."""
    generator = torch.Generator().manual_seed(0)
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.cls_token": (1, 1, D),
        "embeddings.mask_token": (1, D),
        "embeddings.position_embeddings": (1, 17, D),
        "embeddings.register_tokens": (1, 4, D),
        "embeddings.patch_embeddings.projection.weight": (D, 3, 56, 56),
        "embeddings.patch_embeddings.projection.bias": (D,),
    }
    linear = {
        "attention.attention.query": (D, D),
        "attention.attention.key": (D, D),
        "attention.attention.value": (D, D),
        "attention.output.dense": (D, D),
        "mlp.weights_in": (2 * WIDE, D),
        "mlp.weights_out": (D, WIDE),
        "norm1": (D,),
        "norm2": (D,),
    }
    for layer in range(2):
        for name, shape in linear.items():
            shapes[f"encoder.layer.{layer}.{name}.weight"] = shape
            shapes[f"encoder.layer.{layer}.{name}.bias"] = shape[:1]
        for name in ("layer_scale1", "layer_scale2"):
            shapes[f"encoder.layer.{layer}.{name}.lambda1"] = (D,)
    shapes |= {"layernorm.weight": (D,), "layernorm.bias": (D,)}
    return {name: torch.randn(shape, generator=generator) / 10 for name, shape in shapes.items()}


def hibou(state: dict[str, Tensor], x: Tensor) -> Tensor:
    """Class token of a DINOv2 with register tokens and SwiGLU, written out."""

    def linear(name: str, x: Tensor) -> Tensor:
        return F.linear(x, state[f"{name}.weight"], state[f"{name}.bias"])

    def norm(name: str, x: Tensor) -> Tensor:
        return F.layer_norm(x, (D,), state[f"{name}.weight"], state[f"{name}.bias"], eps=1e-6)

    embed = "embeddings.patch_embeddings.projection"
    patches = F.conv2d(x, state[f"{embed}.weight"], state[f"{embed}.bias"], stride=56)
    n = len(x)
    x = torch.cat([state["embeddings.cls_token"].expand(n, 1, D), patches.flatten(2).mT], dim=1)
    x = x + state["embeddings.position_embeddings"]
    x = torch.cat([x[:, :1], state["embeddings.register_tokens"].expand(n, 4, D), x[:, 1:]], dim=1)
    for layer in (f"encoder.layer.{number}" for number in range(2)):
        y = norm(f"{layer}.norm1", x)
        heads = [
            linear(f"{layer}.attention.attention.{name}", y)
            .unflatten(2, (2, D // 2))
            .transpose(1, 2)
            for name in ("query", "key", "value")
        ]
        y = F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
        y = linear(f"{layer}.attention.output.dense", y)
        x = x + state[f"{layer}.layer_scale1.lambda1"] * y
        gate, value = linear(f"{layer}.mlp.weights_in", norm(f"{layer}.norm2", x)).chunk(2, dim=2)
        y = linear(f"{layer}.mlp.weights_out", F.silu(gate) * value)
        x = x + state[f"{layer}.layer_scale2.lambda1"] * y
    return norm("layernorm", x)[:, 0]
