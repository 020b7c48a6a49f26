"""Public encoders by name: which patches they take, and who may use them.

The facts are from the model cards and from the table and code of TRIDENT. Encoders that need code
of their own beside timm and transformers are not here: CONCH, CTransPath, MUSK.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ips.errors import ConfigError, shown

Colour = tuple[float, float, float]
_IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_HALF = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
_OPTIMUS = (0.707223, 0.578729, 0.703617), (0.211883, 0.230117, 0.177517)
_HIBOU = (0.7068, 0.5755, 0.722), (0.195, 0.2316, 0.1816)

_NO_COMMERCE = "CC-BY-NC-ND-4.0"
_APACHE = "Apache-2.0"


@dataclass(frozen=True)
class Preset:
    """A public encoder, and the patches that it was trained on.

    Attributes:
        name: name in `ips slides features --encoder`.
        repo: repository on the Hugging Face hub.
        library: package that has the network.
        model: name of the network in timm, or of its class in transformers.
        dim: number of features of a patch.
        licence: licence of the weights.
        gated: whether the hub asks for a login and consent.
        patch_size, mpp: side of a patch in pixels, and micrometres per pixel; ``mpp`` is None for
            encoders that were not trained on slides.
        resize, crop: a patch is scaled to ``resize`` pixels, and its central ``crop`` pixels are
            encoded.
        pixels: mean and standard deviation of red, green and blue between 0 and 1.
        tokens: the features: the class token, or also the mean of the patch tokens.
        options: arguments of the network in timm.
        trident: name in TRIDENT; the same by default.
    """

    name: str
    repo: str
    library: Literal["timm", "transformers"]
    model: str
    dim: int
    licence: str
    gated: bool = False
    patch_size: int = 224
    mpp: float | None = 0.5
    resize: int = 224
    crop: int = 224
    pixels: tuple[Colour, Colour] = _IMAGENET
    tokens: Literal["class", "class+mean"] = "class"
    options: Mapping[str, Any] = field(default_factory=dict)
    trident: str = ""


def _kaiko(size: str, letter: str, patch: int, dim: int) -> Preset:
    return Preset(
        f"kaiko-vit{letter}{patch}",
        f"1aurent/vit_{size}_patch{patch}_224.kaiko_ai_towards_large_pathology_fms",
        "timm",
        f"vit_{size}_patch{patch}_224",
        dim,
        "Kaiko non-commercial",
        patch_size=256,
        pixels=_HALF,
    )


def _dinov2(size: str, dim: int) -> Preset:
    name = f"dinov2-{size}"
    return Preset(name, f"facebook/{name}", "transformers", "Dinov2Model", dim, _APACHE, mpp=None)


_GIANT = "vit_giant_patch14_reg4_dinov2"
_SWIGLU: dict[str, Any] = {"init_values": 1e-5, "mlp_layer": "SwiGLUPacked", "act_layer": "silu"}
_HUGE = _SWIGLU | {"mlp_ratio": 5.3375}

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            "uni",
            "MahmoodLab/UNI",
            "timm",
            "vit_large_patch16_224",
            1024,
            _NO_COMMERCE,
            gated=True,
            patch_size=256,
            options={"init_values": 1e-5},
            trident="uni_v1",
        ),
        Preset(
            "uni2-h",
            "MahmoodLab/UNI2-h",
            "timm",
            "vit_giant_patch14_224",
            1536,
            _NO_COMMERCE,
            gated=True,
            patch_size=256,
            options=_SWIGLU
            | {
                "embed_dim": 1536,
                "depth": 24,
                "num_heads": 24,
                "mlp_ratio": 2.66667 * 2,
                "no_embed_class": True,
                "reg_tokens": 8,
            },
            trident="uni_v2",
        ),
        Preset(
            "virchow",
            "paige-ai/Virchow",
            "timm",
            "vit_huge_patch14_224",
            2560,
            _APACHE,
            gated=True,
            tokens="class+mean",
            options=_HUGE,
        ),
        Preset(
            "virchow2",
            "paige-ai/Virchow2",
            "timm",
            "vit_huge_patch14_224",
            2560,
            _NO_COMMERCE,
            gated=True,
            tokens="class+mean",
            options=_HUGE | {"reg_tokens": 4},
        ),
        Preset(
            "prov-gigapath",
            "prov-gigapath/prov-gigapath",
            "timm",
            "vit_giant_patch14_dinov2",
            1536,
            _APACHE,
            gated=True,
            patch_size=256,
            resize=256,
            options={"patch_size": 16, "mlp_ratio": 5.33334},
            trident="gigapath",
        ),
        Preset(  # a copy with safetensors, which Bioptimus does not publish
            "h-optimus-0",
            "1aurent/vit_giant_patch14_reg4_224.h-optimus-v0",
            "timm",
            _GIANT,
            1536,
            _APACHE,
            pixels=_OPTIMUS,
            options={"init_values": 1e-5},
            trident="hoptimus0",
        ),
        Preset(
            "h-optimus-1",
            "bioptimus/H-optimus-1",
            "timm",
            _GIANT,
            1536,
            _NO_COMMERCE,
            gated=True,
            pixels=_OPTIMUS,
            options={"init_values": 1e-5},
            trident="hoptimus1",
        ),
        Preset("phikon", "owkin/phikon", "transformers", "ViTModel", 768, "Owkin non-commercial"),
        Preset(
            "phikon-v2",
            "owkin/phikon-v2",
            "transformers",
            "Dinov2Model",
            1024,
            "Owkin non-commercial",
            trident="phikon_v2",
        ),
        Preset(
            "hibou-b",
            "histai/hibou-b",
            "transformers",
            "Dinov2WithRegistersModel",
            768,
            _APACHE,
            pixels=_HIBOU,
            trident="hibou_b",
        ),
        Preset(
            "hibou-l",
            "histai/hibou-L",
            "transformers",
            "Dinov2WithRegistersModel",
            1024,
            _APACHE,
            gated=True,
            pixels=_HIBOU,
            trident="hibou_l",
        ),
        Preset(
            "midnight-12k",
            "kaiko-ai/midnight",
            "transformers",
            "Dinov2Model",
            3072,
            "MIT",
            pixels=_HALF,
            tokens="class+mean",
            trident="midnight12k",
        ),
        _kaiko("small", "s", 8, 384),
        _kaiko("small", "s", 16, 384),
        _kaiko("base", "b", 8, 768),
        _kaiko("base", "b", 16, 768),
        _dinov2("small", 384),
        _dinov2("base", 768),
        _dinov2("large", 1024),
        _dinov2("giant", 1536),
    )
}


def find_preset(encoder: str | None) -> Preset | None:
    """The preset of this name in upper or lower case, or None.

    >>> find_preset("UNI2-h").dim
    1536
    """
    return PRESETS.get((encoder or "").lower())


def preset_named(encoder: str) -> Preset:
    """Like `find_preset`; raise if there is none."""
    preset = find_preset(encoder)
    if preset is None:
        raise ConfigError(
            f"--encoder {shown(encoder, quote=False)}: there is no such preset: choose one of "
            f"{', '.join(PRESETS)}"
        )
    return preset
