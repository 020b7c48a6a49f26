"""The facts of a run in words: what was trained on what, how long it took."""

from __future__ import annotations

import numpy as np

from ips.config import Config
from ips.report.html import Html, el, join
from ips.report.statistics import Floats


def data_name(config: Config) -> str:
    """What the data are called: a table by its file, without the folders it is in."""
    table = getattr(config.data, "csv", None)
    return config.data.kind if table is None else str(table.name)


def facts(config: Config, *, parameters: int, train: int, test: int) -> Html:
    """What was trained, in ten lines.

    Args:
        config: it was trained with.
        parameters: numbers that the model learnt.
        train, test: images.
    """
    learning = config.train
    seeds = [f"training {learning.seed}"]
    if (seed := getattr(config.data, "seed", None)) is not None:
        seeds.append(f"data {seed}")
    schedule = (
        f"{_counted(learning.epochs, 'epoch')} in batches of {learning.batch}, "
        f"learning rate {learning.lr:g}, weight decay {learning.weight_decay:g}, "
        f"precision {learning.precision}"
    )
    tasks = [f"{name} ({task.kind}, {task.classes} classes)" for name, task in config.tasks.items()]
    return _listed(
        {
            "method": config.method,
            "data": f"{data_name(config)}: {train:,} training and {test:,} test images",
            "patches": _patches(config),
            "patches kept": _kept(config),
            "encoder": _encoder(config),
            "aggregation": _aggregation(config),
            "parameters": f"{parameters:,}",
            "training": schedule,
            "seeds": ", ".join(seeds),
            "tasks": ", ".join(tasks),
        }
    )


def costs(log: dict[str, Floats], *, images: int) -> Html:
    """Time and memory, as far as the columns of the training's log tell them."""
    if not np.isfinite(log.get("seconds", np.array([]))).any():
        return el("p", "The run folder holds no log of its training.")
    seconds = log["seconds"]
    middle = float(np.nanmedian(seconds))
    rate = f"{images / max(middle, 1e-9):,.1f} images a second"
    words = {
        "training": f"{duration(float(np.nansum(seconds)))} for {_counted(len(seconds), 'epoch')}",
        "an epoch": f"{duration(middle)} (median), {rate}",
    }
    if "peak_mb" in log and np.isfinite(log["peak_mb"]).any():
        peak = f"{np.nanmax(log['peak_mb']):,.0f} MB"
        words["peak memory"] = f"{peak}, on the GPU if there was one, else of the process"
    return _listed(words)


def duration(seconds: float) -> str:
    """Seconds as a person says them.

    >>> duration(3.21), duration(75), duration(7384)
    ('3.2 s', '1 min 15 s', '2 h 3 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def _counted(count: int, word: str) -> str:
    return f"1 {word}" if count == 1 else f"{count:,} {word}s"


def _listed(words: dict[str, str]) -> Html:
    return el("dl", *(join([el("dt", name), el("dd", fact)]) for name, fact in words.items()))


def _patches(config: Config) -> str:
    patches = config.patches
    if config.encoder.name == "projector":
        return "features, as stored"
    text = f"{patches.size} px, one every {patches.stride or patches.size} px"
    for key in ("level", "mpp", "magnification"):
        if (value := getattr(patches, key)) is not None:
            text += f", {key} {value:g}"
    return text


def _encoder(config: Config) -> str:
    encoder = config.encoder
    if encoder.name == "projector":
        return f"projector to {encoder.dim} values"
    start = "from scratch" if encoder.weights is None else f"starting from {encoder.weights.name}"
    return f"{encoder.name}, {_counted(encoder.stages, 'stage')}, width {encoder.width}, {start}"


def _kept(config: Config) -> str:
    select = config.select
    if config.method == "cnn":
        return f"none: a network over the whole image at scale {config.cnn.scale:g}"
    if select.keep is None:
        return "all"
    step = f", I = {select.chunk} at a time" if config.method.startswith("ips") else ""
    return f"M = {select.keep}{step}"


def _aggregation(config: Config) -> str:
    if config.method in ("cnn", "topmil"):
        return "none"
    aggregate, place = config.aggregate, ", with positions" if config.aggregate.position else ""
    if aggregate.name == "gated-attention" or "deepmil" in config.method:
        return f"gated attention{place}"
    return f"cross-attention, {aggregate.heads} heads{place}"
