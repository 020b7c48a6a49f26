"""Fill in the settings that only the data knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ips.config import Config, EncoderConfig
from ips.errors import ConfigError
from ips.nn.weights import is_name, normalisation
from ips.training.data import Data


def resolve(config: Config, data: Data) -> Config:
    """A copy of ``config`` with the settings of the data filled in, to build a model from."""
    shape = data.train[0][0].shape
    encoder = config.encoder
    if (encoder.name == "projector") != (len(shape) == 1):
        kind = "features" if len(shape) == 1 else "pixels"
        raise ConfigError(
            f"encoder.name={encoder.name} but the data are {kind}: use projector for stored "
            "features and another encoder for images"
        )
    if encoder.inputs not in (None, shape[0]):
        raise ConfigError(f"encoder.inputs={encoder.inputs} but a patch of the data has {shape[0]}")
    # Not checked when a config is read, so that older runs can still be opened.
    warmup, epochs = config.train.warmup_epochs, config.train.epochs
    if warmup >= epochs:
        raise ConfigError(
            f"train.warmup={warmup:g} with train.epochs={epochs}: use fewer warm-up epochs than "
            "epochs"
        )
    tasks = {
        name: task.model_copy(update={"names": task.names or data.names.get(name)})
        for name, task in config.tasks.items()
    }
    paths = {name: value.resolve() for name, value in config.data if isinstance(value, Path)}
    update: dict[str, Any] = {"inputs": shape[0], **_resolve_weights(encoder)}
    return config.model_copy(
        update={
            "data": config.data.model_copy(update=paths),
            "encoder": encoder.model_copy(update=update),
            "tasks": tasks,
        }
    )


def _resolve_weights(encoder: EncoderConfig) -> dict[str, Any]:
    """Absolute path of the weights, and the normalisation of pixels."""
    update: dict[str, Any] = {}
    if encoder.weights is not None and not is_name(encoder.weights):
        update["weights"] = encoder.weights.resolve()
    if ":" not in encoder.name:  # a timm model brings its own normalisation
        mean, std = normalisation(encoder.weights)
        update |= {"mean": encoder.mean or mean, "std": encoder.std or std}
    return update
