"""Build the encoder of feature extraction, on the device of this process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import torch

from ips.errors import ConfigError
from ips.nn import ENCODERS, build_encoder
from ips.nn.weights import encoder_settings
from ips.slides.features import CROP, Dtype, FeatureExtractor, Normalise


def build_extractor(
    encoder: str | None = None,
    *,
    weights: str | None = None,
    stages: int | None = None,
    width: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    crop: int = CROP,
    normalise: Normalise = "l2",
    dtype: Dtype = "float16",
) -> FeatureExtractor:
    """Build a feature extractor from the name of an encoder and of its weights.

    Args:
        encoder: name of the encoder, see `ips.nn.build_encoder`; by default the one stored in the
            weights file, or resnet50.
        weights: weights of the encoder, see `ips.nn.build_encoder`; required for a ResNet.
        stages, width: size of a ResNet; by default as stored in the weights file, or 4 and 64.
        mean, std: pixel statistics; by default those that the weights were trained with.
        crop, normalise, dtype: see `FeatureExtractor`.
    """
    stored = encoder_settings(weights)
    name = encoder or stored.get("name", "resnet50")
    if weights is None and name in ENCODERS:
        raise ConfigError(
            f"--encoder {name} needs --weights: a file, imagenet or hub:OWNER/REPO; or none for "
            "an untrained encoder"
        )
    torch.manual_seed(0)  # an untrained encoder is the same in every process
    built = build_encoder(
        name,
        weights=weights,
        inputs=int(stored.get("inputs", 3)),
        stages=stages or stored.get("stages", 4),
        width=width or stored.get("width", 64),
    )
    return FeatureExtractor(
        built.net.to(default_device()),
        name=name if weights is None else f"{name} {Path(weights).name}",
        channels=built.inputs,
        mean=mean or stored.get("mean", built.mean),
        std=std or stored.get("std", built.std),
        crop=crop,
        normalise=normalise,
        dtype=dtype,
    )


def default_device() -> torch.device:
    """The GPU that torchrun assigns to this process, the first GPU, or the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    # A process may see only one of several GPUs, and there may be more processes than GPUs.
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    return torch.device("cuda", rank % torch.cuda.device_count())
