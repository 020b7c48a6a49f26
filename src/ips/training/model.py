"""The model of a config, and the settings that only the data knows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ips.config import Config, PatchesConfig
from ips.errors import ConfigError
from ips.images.colour import channel_count
from ips.models import CNN, DPSNet, IPSNet, Net, ScoreMap, Screen, SelectingNet, TopMIL
from ips.nn import (
    ENCODERS,
    Aggregator,
    BuiltEncoder,
    CrossAttentionTransformer,
    EfficientNetLite,
    GatedAttention,
    Head,
    PatchLead,
    PatchReadout,
    ResNet,
    build_encoder,
)
from ips.nn.efficientnet import EFFICIENTNET
from ips.nn.weights import is_name, is_pretrained, normalisation
from ips.patches.filtered import OTSU
from ips.tasks import Cox, Task, build_tasks
from ips.training.data import Data
from ips.training.defaults import resolved_task, with_defaults

# Encoders of methods that need feature maps of the whole image; dps scores with two stages of it.
_WITH_MAPS = {"cnn": [*ENCODERS, EFFICIENTNET], "dps": list(ENCODERS)}
_RANDOM = ("rps", "deepmil", "deepmil-plus")  # methods that draw patches at random, or use all


def resolve(config: Config, data: Data) -> Config:
    """A copy of ``config`` with all open settings filled in, to build a model from."""
    config = with_defaults(config, data)
    shape = data.train[0][0].shape
    encoder = config.encoder
    assert encoder.name is not None
    if (encoder.name == "projector") != (len(shape) == 1):
        kind = "features" if len(shape) == 1 else "pixels"
        raise ConfigError(
            f"encoder.name={encoder.name} but the data are {kind}: use projector for stored "
            "features and another encoder for images"
        )
    if encoder.inputs not in (None, shape[0]):
        raise ConfigError(f"encoder.inputs={encoder.inputs} but a patch of the data has {shape[0]}")
    # These are not checked when a config is read, so that older runs can still be opened.
    pretrained = is_pretrained(encoder.name, encoder.weights)
    if config.method == "cnn" and config.aggregate.position and pretrained:
        raise ConfigError(
            "aggregate.position=true with method=cnn adds a channel to the image, which pretrained "
            "weights do not know: set aggregate.position=false, or encoder.weights=none"
        )
    warmup, epochs = config.train.warmup_epochs, config.train.epochs
    if warmup >= epochs:
        raise ConfigError(
            f"train.warmup={warmup:g} with train.epochs={epochs}: use fewer warm-up epochs than "
            "epochs"
        )
    tasks = {name: resolved_task(name, task, data) for name, task in config.tasks.items()}
    if config.train.batch == 1 and any(isinstance(t, Cox) for t in build_tasks(tasks).values()):
        raise ConfigError(
            "train.batch=1 with loss=cox, which compares the images of a batch: set train.batch to "
            "16, or the loss of the task to hazards"
        )
    paths = {name: value.resolve() for name, value in config.data if isinstance(value, Path)}
    update: dict[str, Any] = {"inputs": shape[0]}
    if encoder.weights is not None and not is_name(encoder.weights):
        update["weights"] = encoder.weights.resolve()
    if ":" not in encoder.name:  # a timm model brings its own normalisation
        mean, std = normalisation(encoder.name, encoder.weights, inputs=shape[0])
        update |= {"mean": encoder.mean or mean, "std": encoder.std or std}
    return config.model_copy(
        update={
            "data": config.data.model_copy(update=paths),
            "patches": _resolved_patches(config, data, shape),
            "encoder": encoder.model_copy(update=update),
            "tasks": tasks,
        }
    )


def _resolved_patches(config: Config, data: Data, shape: tuple[int, ...]) -> PatchesConfig:
    """Store the channels of a table's images, so that every later image is converted to them."""
    channels = config.patches.channels or data.channels
    if channels is not None and len(shape) == 3 and channel_count(shape[0], channels) != shape[0]:
        raise ConfigError(  # images that are drawn have their own
            f"patches.channels={channels} but images of {config.data.kind} have {shape[0]} "
            f"channel{'s' * (shape[0] > 1)}: leave it out"
        )
    patches = config.patches
    paths: dict[str, Any] = {key: v.resolve() for key, v in patches if isinstance(v, Path)}
    if patches.tissue not in (None, OTSU):
        paths["tissue"] = str(Path(patches.tissue).resolve())
    return patches.model_copy(update={"channels": channels, **paths})


def build_model(config: Config) -> Net:
    """Build the model that a resolved config describes, with its initial weights."""
    try:
        return _build(config)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not re.search("allocate|overflow", str(error)):
            raise
        raise ConfigError(
            "a model of these settings does not fit into memory: reduce encoder.width, "
            "aggregate.hidden or another size of a layer"
        ) from error


def _build(config: Config) -> Net:
    if config.select.screen and config.method in _WITH_MAPS:
        raise _no_screen(config)
    # the CNN gets the position as an additional channel of the image
    built = _encoder(config, extra=int(config.method == "cnn" and config.aggregate.position))
    encoder, dim = built.net, built.dim
    tasks = build_tasks(config.tasks)
    heads = {
        name: Head(dim, task.outputs, activation=task.activation, hidden=config.aggregate.head)
        for name, task in tasks.items()
    }
    common: dict[str, Any] = {
        "position": config.aggregate.position,
        "mean": built.mean,
        "std": built.std,
    }
    if config.method == "cnn":
        assert isinstance(encoder, ResNet | EfficientNetLite)
        return CNN(encoder, heads, keep=config.select.keep, scale=config.cnn.scale, **common)
    common |= {"readout": _readout(config, dim, tasks), "slice_size": config.train.slice}
    if config.method == "dps":
        return _dps(config, encoder, dim, heads, common)
    select, topmil = config.select, config.method == "topmil"
    ips: type[SelectingNet] = IPSNet if config.method.startswith("ips") else SelectingNet
    net = (TopMIL if topmil else ips)(
        encoder,
        None if topmil else _aggregator(config, dim),
        heads,
        keep=select.keep,
        chunk=select.chunk,
        mode="random" if config.method in _RANDOM else select.mode,
        skip_blank=select.skip_blank,
        compile=select.compile,
        micro_batch=select.micro_batch,
        **common,
    )
    if select.screen:
        net.screen = _screen(config, net)
    return net


def _screen(config: Config, net: SelectingNet) -> Screen:
    if config.encoder.name == "projector":
        raise ConfigError(
            "select.screen=true with stored features, which have no coarse view: set "
            "select.screen=false"
        )
    if not net.scores_all_patches or net.keep is None:
        raise _no_screen(config)
    assert config.encoder.inputs is not None
    with torch.random.fork_rng(devices=[]):  # all other weights are those without a screen
        torch.manual_seed(config.train.seed)
        return Screen(config.encoder.inputs, net.channels)


def _no_screen(config: Config) -> ConfigError:
    return ConfigError(
        f"select.screen=true with method={config.method}, which does not select among all patches: "
        "set select.screen=false"
    )


def _aggregator(config: Config, dim: int) -> Aggregator:
    aggregate = config.aggregate
    if aggregate.name == "gated-attention":
        return GatedAttention(dim, tokens=len(config.tasks), hidden=aggregate.hidden)
    return CrossAttentionTransformer(
        dim,
        tokens=len(config.tasks),
        heads=aggregate.heads,
        inner=aggregate.inner,
        start=aggregate.start,
        dropout=aggregate.dropout,
        attention_dropout=aggregate.attention_dropout,
    )


def _readout(config: Config, dim: int, tasks: Mapping[str, Task]) -> PatchReadout | None:
    if config.readout is None:
        return None
    task = tasks[config.readout]
    head = Head(dim, task.outputs, activation=task.class_activation, hidden=config.readout_head)
    return PatchReadout(head, task=config.readout, token=list(tasks).index(config.readout))


def build_lead(net: Net, config: Config) -> PatchLead | None:
    """The classifiers of single patches that lead the start of a training, if the config asks."""
    start, encoder = config.train.start, config.encoder
    if start == "attention":
        return None
    if config.method not in ("ips", "ips-deepmil"):
        raise ConfigError(
            f"train.start={start} with method={config.method}, which does not choose patches by "
            "attention: set train.start=attention"
        )
    assert encoder.name is not None
    if start == "features" and not is_pretrained(encoder.name, encoder.weights):
        raise ConfigError(
            f"train.start=features with encoder.name={encoder.name}, which has no pretrained "
            "weights: set encoder.weights, or train.start=patches"
        )
    dim = next(net.heads[0].parameters()).shape[1]  # of the first linear layer
    return PatchLead(dim, build_tasks(config.tasks))


def _dps(
    config: Config, encoder: nn.Module, dim: int, heads: Mapping[str, Head], common: dict[str, Any]
) -> DPSNet:
    if config.select.keep is None:
        raise ConfigError("select.keep=null with method=dps, which selects patches: give a number")
    # The scorer is a copy of the encoder's first two stages.
    stem = _encoder(config, stages=2, plain=True).net
    assert isinstance(stem, ResNet)
    return DPSNet(
        encoder,
        _aggregator(config, dim),
        heads,
        ScoreMap(stem),
        keep=config.select.keep,
        scale=config.dps.scale,
        samples=config.dps.samples,
        sigma=config.dps.sigma,
        decay=config.dps.decay,
        gradient_clip=config.dps.clip,
        **common,
    )


def _encoder(
    config: Config, *, extra: int = 0, stages: int | None = None, plain: bool = False
) -> BuiltEncoder:
    encoder = config.encoder
    if encoder.inputs is None or encoder.name is None or encoder.stages is None:
        raise ConfigError("encoder.inputs is not known yet: resolve the config with its data first")
    known = _WITH_MAPS.get(config.method)
    if known is not None and encoder.name not in known:
        raise ConfigError(
            f"method={config.method} needs one of the encoders {', '.join(known)}, not "
            f"{encoder.name}: choose one of these, or another method"
        )
    built = build_encoder(
        encoder.name,
        weights=encoder.weights,
        inputs=encoder.inputs + extra,
        stages=stages or encoder.stages,
        width=encoder.width,
        norm=encoder.norm and not plain,
        start=encoder.start,
        pool=encoder.pool,
        dim=encoder.dim,
        enlarge=1.0 if plain else encoder.enlarge,
        freeze=0 if plain else encoder.freeze,
    )
    built = replace(built, mean=encoder.mean or built.mean, std=encoder.std or built.std)
    for key, values in (("mean", built.mean), ("std", built.std)):
        if encoder.name != "projector" and len(values) not in (1, encoder.inputs):
            raise ConfigError(
                f"encoder.{key} has {len(values)} values for {encoder.inputs} channels: "
                "give one for each, or one for all"
            )
    side = getattr(built.net, "patch_shape", (None,))[-1]
    if encoder.name != "projector" and side not in (None, config.patches.size):
        raise ConfigError(
            f"patches.size={config.patches.size} but encoder.name={encoder.name} only accepts "
            f"patches of {side} px: set patches.size={side}"
        )
    return built
