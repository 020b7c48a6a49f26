"""Build an encoder by name: one of ours, a timm model, or a model of the Hugging Face hub.

The name says which network it is, ``weights`` says where its weights come from.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from torch import nn

from ips.errors import ConfigError, require
from ips.nn.efficientnet import EFFICIENTNET, EfficientNetLite
from ips.nn.encoders import ENCODERS, FeatureProjector, ResNet
from ips.nn.weights import IMAGENET, UNTRAINED, hub_repository, load_weights, normalisation

PROJECTOR = "projector"


@dataclass(frozen=True)
class BuiltEncoder:
    """An encoder, and what a network around it needs to know.

    Attributes:
        net: from ``(n, C, h, w)`` floats, or ``(n, D_in)`` features, to ``(n, D)``.
        inputs: C, channels of an image, or D_in.
        dim: D, the embedding size.
        mean, std: of the pixels that the weights were trained on, per channel, scaled to 0..1.
    """

    net: nn.Module
    inputs: int
    dim: int
    mean: Sequence[float] = (0.0,)
    std: Sequence[float] = (1.0,)


def build_encoder(
    name: str,
    *,
    weights: str | Path | None = None,
    inputs: int = 3,
    stages: int = 4,
    width: int = 64,
    norm: bool = False,
    pool: Literal["mean", "max"] = "mean",
    start: Literal["kaiming", "authors"] = "kaiming",
    dim: int = 512,
    enlarge: float = 1.0,
    freeze: int = 0,
) -> BuiltEncoder:
    """Build an encoder and load its weights.

    Args:
        name: a ResNet of ``ENCODERS``; ``efficientnet-lite0``; ``projector`` for stored features;
            ``timm:NAME``; or ``hub:OWNER/REPO`` for a model of the Hugging Face hub that timm can
            load.
        weights: a file; ``imagenet``; ``hub:OWNER/REPO``; or ``none`` for an untrained network. By
            default a ResNet is untrained and the others have their own pretrained weights.
        inputs: channels of an image, or features of a stored patch.
        stages: number of stages of a ResNet or EfficientNet-lite0 to keep.
        width: channels of the first stage of a ResNet.
        norm: add a BatchNorm over the embedding of a ResNet or EfficientNet-lite0.
        pool: pooling of a ResNet or EfficientNet-lite0.
        start: initial first layer of a ResNet, see `ips.nn.ResNet`.
        dim: embedding size of the projector.
        enlarge: factor by which a ResNet or EfficientNet-lite0 enlarges patches first.
        freeze: number of first stages of these networks that keep their pretrained weights.

    Raises:
        ConfigError: if there is no such encoder, or the weights are not for it.
    """
    weights = None if weights is None else str(weights)
    if enlarge != 1 and (name == PROJECTOR or ":" in name):
        raise ConfigError(
            f"encoder.enlarge={enlarge:g} with encoder.name={name}, which takes patches as they "
            "are: leave out encoder.enlarge"
        )
    if freeze and (name == PROJECTOR or ":" in name):
        raise ConfigError(
            f"encoder.freeze={freeze} with encoder.name={name}, whose stages are not known: leave "
            "out encoder.freeze"
        )
    if name.startswith(("timm:", "hub:")):
        return _build_timm(name, weights, channels=inputs)
    if name == PROJECTOR:
        if weights not in (None, UNTRAINED):
            raise ConfigError(
                f"encoder.weights={weights} with encoder.name={PROJECTOR}, which has no pretrained "
                "weights: leave out encoder.weights"
            )
        return BuiltEncoder(FeatureProjector(inputs, dim=dim), inputs, dim)
    options: dict[str, Any] = {"stages": stages, "norm": norm, "pool": pool, "channels": inputs}
    options["enlarge"] = enlarge
    net: ResNet | EfficientNetLite
    if name == EFFICIENTNET:
        weights = weights or IMAGENET
        net = EfficientNetLite(**options)
    elif name in ENCODERS:
        net = ENCODERS[name](width=width, start=start, **options)
    else:
        known = ", ".join([*ENCODERS, EFFICIENTNET, PROJECTOR, "timm:NAME", "hub:OWNER/REPO"])
        raise ConfigError(f"there is no encoder {name}: choose one of {known}")
    if weights is not None and weights != UNTRAINED:
        load_weights(net, weights)
    elif freeze:
        raise ConfigError(
            f"encoder.freeze={freeze} without pretrained weights: give encoder.weights, or leave "
            "out encoder.freeze"
        )
    net.freeze(freeze)
    return BuiltEncoder(net, inputs, net.dim, *normalisation(name, weights, inputs=inputs))


def _build_timm(name: str, weights: str | None, *, channels: int) -> BuiltEncoder:
    kind, _, model = name.partition(":")
    if kind == "hub" and weights is not None and weights.startswith("hub:"):
        if hub_repository(weights)[0] != model:
            raise ConfigError(
                f"encoder.name={name} and encoder.weights={weights} are two different models: "
                "leave out encoder.weights, or name the network that these weights belong to"
            )
        weights = None if weights == name else weights
    if weights == IMAGENET:
        raise ConfigError(
            f"encoder.weights={IMAGENET} with encoder.name={name}: leave out encoder.weights to "
            "use the model's own pretrained weights"
        )
    net = create_timm(
        model if kind == "timm" else f"hf-hub:{model}",
        encoder=name,
        pretrained=weights is None,
        num_classes=0,  # embeddings instead of classes
        **({} if channels == 3 else {"in_chans": channels}),
    )
    if weights is not None and weights != UNTRAINED:
        load_weights(net, weights)
    config = net.pretrained_cfg
    fixed = config.get("fixed_input_size", False) and not getattr(net, "dynamic_img_size", False)
    size = config["input_size"][1:] if fixed else (None, None)
    net.patch_shape = (channels, *size)
    return BuiltEncoder(net, channels, net.num_features, config["mean"], config["std"])


def create_timm(model: str, *, encoder: str, **options: Any) -> Any:
    """Create a model of timm; ``encoder`` is its name in messages.

    The option ``mlp_layer`` is the name of a class of ``timm.layers``.
    """
    require("timm")
    try:
        if "mlp_layer" in options:
            options["mlp_layer"] = getattr(import_module("timm.layers"), options["mlp_layer"])
        with _no_pickle():
            return import_module("timm").create_model(model, **options)
    except Exception as error:  # timm and the libraries below it raise many types
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise ConfigError(
            f"encoder {encoder}: timm could not create it ({reason}): check the name, the network "
            "connection and, for a model of the hub, your login"
        ) from error


@contextmanager
def _no_pickle() -> Iterator[None]:
    """Forbid ``torch.load`` to run code from a weights file; timm allows it for some models."""
    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
