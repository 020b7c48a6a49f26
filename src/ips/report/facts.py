"""The facts of a run in words: data, model, training, time and memory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ips.config import Config
from ips.nn import ENCODERS
from ips.progress import duration
from ips.statistics import Floats, Interval


def data_name(config: Config) -> str:
    """Name of the data set; a table is called by its file name."""
    table = getattr(config.data, "csv", None)
    return config.data.kind if table is None else str(table.name)


def counted(count: int, word: str) -> str:
    """A number with its noun.

    >>> counted(1, "epoch"), counted(1200, "epoch")
    ('1 epoch', '1,200 epochs')
    """
    return f"1 {word}" if count == 1 else f"{count:,} {word}s"


def setup(
    config: Config, *, model: Mapping[str, str], parameters: int, train: int | None, test: int
) -> dict[str, str]:
    """What was trained, on what and how; ``train`` and ``test`` are numbers of images.

    Without ``train``, only facts of the model are given, which may have been trained elsewhere.
    For ``model``, its description, see `ips.models.Net.describe`.
    """
    tasks = [
        f"{name} ({task.kind}, {task.classes} classes)"
        if task.has_classes
        else f"{name} ({task.kind})"
        for name, task in config.tasks.items()
    ]
    if train is None:
        facts = {"patches": _patches(config), **model, "parameters": f"{parameters:,}"}
        return facts | {"tasks": ", ".join(tasks)}
    training = config.train
    seeds = f"training {training.seed}"
    if (seed := getattr(config.data, "seed", None)) is not None:
        seeds += f", data {seed}"
    schedule = (
        f"{counted(training.epochs, 'epoch')} in batches of {training.batch}, "
        f"learning rate {training.lr:g}, weight decay {training.weight_decay:g}, "
        f"precision {training.precision}"
    )
    if training.balance not in (None, "none"):
        how = "weights" if training.balance == "lopsided" else training.balance
        schedule += f", classes balanced by {how}"
    if config.augment.kind not in (None, "none"):
        schedule += f", augmented as {config.augment.kind}"
    return {
        "method": config.method,
        "data": f"{data_name(config)}: {train:,} training and {test:,} test images",
        "patches": _patches(config),
        "encoder": _encoder(config),
        **model,
        "parameters": f"{parameters:,}",
        "training": schedule,
        "seeds": seeds,
        "tasks": ", ".join(tasks),
    }


def costs(log: dict[str, Floats], *, images: int) -> dict[str, str]:
    """Time and memory of the training on ``images`` images, as far as its log has them."""
    seconds = log.get("seconds", np.array([]))
    if not np.isfinite(seconds).any():
        return {}
    median = float(np.nanmedian(seconds))
    rate = f"{images / max(median, 1e-9):,.1f} images per second"
    facts = {
        "training": f"{duration(float(np.nansum(seconds)))} for {counted(len(seconds), 'epoch')}",
        "one epoch": f"{duration(median)} (median), {rate}",
    }
    if "peak_mb" in log and np.isfinite(log["peak_mb"]).any():
        peak = f"{np.nanmax(log['peak_mb']):,.0f} MB"
        facts["peak memory"] = f"{peak} of the GPU, or of the process if there was no GPU"
    return facts | _scored(log)


def _scored(log: dict[str, Floats]) -> dict[str, str]:
    """How many patches were scored, and with which recall, if that were not always all."""
    recalls = [f"recall{kind}{end}" for kind in ("_attention", "") for end in ("", "_low", "_high")]
    if not {"scored", *recalls} <= log.keys():
        return {}
    partial = np.flatnonzero((log["scored"] < 1) & np.isfinite(log["recall_attention"]))
    if not len(partial):
        return {"scored patches": "all in every epoch"}
    last = partial[-1]
    values = [float(log[name][last]) for name in recalls]
    return {
        "scored patches": f"{log['scored'][partial].mean():.0%} in {len(partial)} of "
        f"{counted(len(log['scored']), 'epoch')}, all in the others; recall "
        f"{Interval(*values[:3])} of the attention to the selected patches, "
        f"{Interval(*values[3:])} of the patches, in epoch {log['epoch'][last]:.0f}"
    }


def _patches(config: Config) -> str:
    patches = config.patches
    if config.encoder.name == "projector":
        return "precomputed features"
    text = f"{patches.size} px, one every {patches.stride or patches.size} px"
    for key in ("level", "mpp", "magnification", "scale"):
        if (value := getattr(patches, key)) is not None:
            values = value if isinstance(value, list) else [value]
            text += f", {key} {' and '.join(f'{v:g}' for v in values)}"
    return f"{text}, with tissue" if patches.tissue is not None else text


def _encoder(config: Config) -> str:
    encoder = config.encoder
    if encoder.name == "projector":
        return f"projector to {encoder.dim} values"
    assert encoder.name is not None
    text, start = encoder.name, "pretrained"
    if not text.startswith(("timm:", "hub:")):
        assert encoder.stages is not None
        width = f", width {encoder.width}" if text in ENCODERS else ""
        text += f", {counted(encoder.stages, 'stage')}{width}"
        start = "from scratch"
    if encoder.weights is not None:
        weights = encoder.weights.name  # a file without its folder
        start = "from scratch" if weights == "none" else f"starting from {weights}"
    return f"{text}, {start}"
