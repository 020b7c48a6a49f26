"""Build the encoder of feature extraction, on the device of this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ips.devices import pick_device
from ips.errors import ConfigError, shown
from ips.nn import ENCODERS, build_encoder
from ips.nn.build import BuiltEncoder
from ips.nn.efficientnet import EFFICIENTNET
from ips.nn.weights import encoder_settings
from ips.slides.coords import preset_resolution
from ips.slides.features import CROP, Dtype, FeatureExtractor, Normalise
from ips.slides.foundation import build_preset
from ips.slides.presets import find_preset


def build_extractor(
    encoder: str | None = None,
    *,
    weights: str | None = None,
    stages: int | None = None,
    width: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    resize: int | None = None,
    crop: int | None = None,
    normalise: Normalise | None = None,
    dtype: Dtype = "float16",
) -> FeatureExtractor:
    """Build a feature extractor from the name of an encoder and of its weights.

    Args:
        encoder: name of a preset, see `ips.slides.presets`, or of another encoder, see
            `ips.nn.build_encoder`; by default the one stored in the weights file, or resnet50.
        weights: weights of the encoder, see `ips.slides.foundation.build_preset` and
            `ips.nn.build_encoder`; required for a ResNet.
        stages, width: size of a ResNet; by default as stored in the weights file, or 4 and 64.
        mean, std: pixel statistics; by default those that the weights were trained with.
        resize, crop: see `FeatureExtractor`; by default those of the preset, or no scaling and 224.
        normalise: see `FeatureExtractor`; by default ``none`` for a preset, otherwise ``l2``.
        dtype: see `FeatureExtractor`.
    """
    torch.manual_seed(0)  # an untrained encoder is the same in every process
    preset = find_preset(encoder)
    if preset is not None:
        if stages or width:
            raise ConfigError(f"--encoder {preset.name} has no --stages and --width: omit them")
        name, stored = preset.name, dict[str, Any]()
        built = BuiltEncoder(build_preset(preset, weights=weights), 3, preset.dim, *preset.pixels)
    else:
        stored = encoder_settings(weights)
        name = str(encoder or stored.get("name", "resnet50"))
        built = _build_other(name, weights, stored, stages=stages, width=width)
    return FeatureExtractor(
        built.net.to(pick_device()),
        name=name if preset or weights is None else f"{name} {Path(weights).name}",
        channels=built.inputs,
        mean=mean or stored.get("mean", built.mean),
        std=std or stored.get("std", built.std),
        resize=resize or (preset.resize if preset else None),
        crop=crop or (preset.crop if preset else CROP),
        normalise=normalise or ("none" if preset else "l2"),
        dtype=dtype,
        resolution=preset_resolution(preset),
    )


def _build_other(
    name: str,
    weights: str | None,
    stored: dict[str, Any],
    *,
    stages: int | None,
    width: int | None,
) -> BuiltEncoder:
    """Build an encoder that is not a preset."""
    known = (*ENCODERS, EFFICIENTNET)
    if name not in known and not name.startswith(("timm:", "hub:")):
        raise ConfigError(
            f"there is no encoder {shown(name, quote=False)}: choose one of {', '.join(known)}, "
            "timm:NAME, hub:OWNER/REPO, or a preset that `ips slides encoders` lists"
        )
    if weights is None and name in ENCODERS:
        raise ConfigError(
            f"--encoder {name} needs --weights: a file, imagenet or hub:OWNER/REPO; or none for "
            "an untrained encoder"
        )
    return build_encoder(
        name,
        weights=weights,
        inputs=int(stored.get("inputs", 3)),
        stages=stages or stored.get("stages", 4),
        width=width or stored.get("width", 64),
    )
