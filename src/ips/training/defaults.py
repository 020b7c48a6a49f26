"""Choose the settings that a config leaves open (null), by data set and encoder.

The paper's recipes get what the paper has: a fresh ResNet unless named otherwise, no augmentation,
no balancing, and the last epoch. A table of one's own images gets what usually works for those.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch

from ips.config import AugmentConfig, Config, EncoderConfig, TableConfig, TaskConfig, TrainConfig
from ips.data.split import Split
from ips.errors import ConfigError
from ips.nn.build import PROJECTOR
from ips.nn.efficientnet import EFFICIENTNET
from ips.nn.weights import IMAGENET, is_pretrained
from ips.patches import PatchSource
from ips.tasks import build_tasks
from ips.training.balance import lopsided_classes
from ips.training.data import Data

_STAGES = {EFFICIENTNET: 7}  # others have 4

# Learning rates: a pretrained encoder needs small steps.
_FINE_TUNING, _FROM_SCRATCH = 0.0005, 0.001

_NONE = {
    "flips": "none",
    "turns": False,
    "size": 0,
    "tilt": 0,
    "colour": 0,
    "stain": 0,
    "blur": 0,
    "shift": 0,
}
_PRESETS: dict[str, dict[str, Any]] = {
    "none": _NONE,
    "photographs": _NONE | {"flips": "horizontal", "colour": 0.2, "blur": 1, "shift": 0.25},
    # A slide has no top, and its stains differ from laboratory to laboratory.
    "slides": _NONE
    | {
        "flips": "both",
        "turns": True,
        "colour": 0.1,
        "stain": 0.1,
        "blur": 1,
        "shift": 0.5,
    },
    # Writing has a direction.
    "documents": _NONE | {"colour": 0.2, "blur": 1, "shift": 0.25},
}

# Micrometres per pixel: slides are scanned at 0.1 to 4, documents at 1,200 dpi have 21.
_LARGEST_SLIDE_PIXEL = 10.0
_WHOLE_IMAGE = ("cnn", "dps")  # methods that put the patches together again


def with_defaults(config: Config, data: Data) -> Config:
    """A copy of ``config`` without open settings of encoder, augmentation and training."""
    source, _ = data.train[0]
    config = config.model_copy(update={"encoder": _encoder(config, source)})
    train = _train(config, data)
    freeze_norm = config.encoder.freeze_norm
    if freeze_norm is None:  # attention that learnt without the statistics of a batch needs none
        freeze_norm = train.start == "features" and not config.encoder.norm
    encoder = config.encoder.model_copy(update={"freeze_norm": freeze_norm})
    return config.model_copy(
        update={"encoder": encoder, "augment": _augment(config, source), "train": train}
    )


def resolved_task(name: str, task: TaskConfig, data: Data) -> TaskConfig:
    """A task with the class names of the data, or with what the model must know of its labels.

    The mean and standard deviation of a regression are those of the training images. Time intervals
    end at the quartiles of the times of events, in training and validation, so that all folds of a
    cross-validation have the same.
    """
    if task.has_classes:
        return task.model_copy(update={"names": task.names or data.names.get(name)})
    splits: list[Split] = ["train"] if task.kind == "regression" else ["train", "validation"]
    rows = [row[name] for split in splits for row in data.labels.get(split, [])]
    values = torch.stack(rows).double() if rows else torch.empty(0, 2)
    values = values[build_tasks({name: task})[name].known(values)]
    if task.kind == "regression" and len(values):
        mean, deviation = float(values.mean()), float(values.std(correction=0)) or 1.0
        mean = mean if task.mean is None else task.mean
        return task.model_copy(update={"mean": mean, "deviation": task.deviation or deviation})
    if task.loss == "hazards" and task.cuts is None and (values[:, 1] > 0).any():
        times = values[values[:, 1] > 0, 0]
        cuts = times.quantile(torch.arange(1, 5, dtype=times.dtype) / 4).unique()
        return task.model_copy(update={"cuts": [cut for cut in cuts.tolist() if cut > 0]})
    return task


def _encoder(config: Config, source: PatchSource) -> EncoderConfig:
    encoder, own = config.encoder, isinstance(config.data, TableConfig)
    name, weights = encoder.name, encoder.weights
    if name is None:
        name = "resnet18"
        if own and len(source.shape) == 1:
            name = PROJECTOR
        elif own and weights is None and config.method != "dps":
            name = EFFICIENTNET
    if name == EFFICIENTNET and weights is None:
        weights = Path(IMAGENET)
    stages = encoder.stages or _STAGES.get(name, 4)
    return encoder.model_copy(update={"name": name, "weights": weights, "stages": stages})


def _augment(config: Config, source: PatchSource) -> AugmentConfig:
    augment, own = config.augment, isinstance(config.data, TableConfig)
    pixels, whole = len(source.shape) == 3, config.method in _WHOLE_IMAGE
    kind = augment.kind
    if kind is None:
        kind = "none"
        if own and pixels and not whole:
            kind = "slides" if _is_slide(source) else "photographs"
    given = {key: value for key, value in augment if value is not None}
    result = AugmentConfig(**{**_PRESETS[kind], **given, "kind": kind})
    if changes(result) and (whole or not pixels):
        what = f"method={config.method}" if whole else "stored features"
        raise ConfigError(
            f"augment.kind={kind} with {what}, which cannot be augmented: set augment.kind=none, "
            "and no other setting of augment"
        )
    return result


def changes(augment: AugmentConfig) -> bool:
    """Whether a resolved section ``augment`` changes images at all."""
    return any(getattr(augment, key) != value for key, value in _NONE.items())


def _is_slide(source: PatchSource) -> bool:
    mpp = source.parts[0].mpp
    return mpp is not None and min(mpp) <= _LARGEST_SLIDE_PIXEL


def _train(config: Config, data: Data) -> TrainConfig:
    train, own = config.train, isinstance(config.data, TableConfig)
    assert config.encoder.name is not None
    tuned = own and is_pretrained(config.encoder.name, config.encoder.weights)
    validated = data.validation is not None
    for key, open in (("result", "last"), ("patience", None)):
        value = getattr(train, key)
        if value not in (None, open) and not validated:
            raise ConfigError(
                f"train.{key}={value} needs validation images: set data.validation, or leave it out"
            )
    labels = data.labels.get("train", [])
    if train.balance not in (None, "none") and not labels:
        raise ConfigError(
            f"train.balance={train.balance} with data.kind={config.data.kind}: only the classes "
            "of a table can be balanced: set train.balance=none"
        )
    if train.balance not in (None, "none") and not any(
        task.has_classes for task in config.tasks.values()
    ):
        raise ConfigError(
            f"train.balance={train.balance}, but no task has classes to balance: leave it out"
        )
    tasks = build_tasks(config.tasks)
    lopsided = own and labels and lopsided_classes(labels, tasks) is not None
    return train.model_copy(
        update={
            "lr": train.lr or (_FINE_TUNING if tuned else _FROM_SCRATCH),
            "balance": train.balance or ("lopsided" if lopsided else "none"),
            "start": train.start or _start(config, tuned=tuned),
            "result": train.result or ("best" if own and validated else "last"),
        }
    )


def _start(config: Config, *, tuned: bool) -> Literal["features", "patches", "attention"]:
    """How patches are selected at first; a BatchNorm of embeddings changes them in training."""
    if config.method != "ips":
        return "attention"
    return "features" if tuned and not config.encoder.norm else "patches"
