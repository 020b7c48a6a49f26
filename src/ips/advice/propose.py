"""Choose a value for every setting from the data and this machine, each with a reason.

Letters: N patches of an image, M kept, I per step of the selection.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from ips.advice.choices import Choice, nested, split_counts, task_choices
from ips.advice.cost import Cost
from ips.advice.found import FoundData
from ips.advice.grids import Grid, grids, patch_choices
from ips.advice.survey import Survey
from ips.progress import rough_duration

#: Measures the cost of these settings on a typical image.
Measure = Callable[[Mapping[str, Any]], Cost]

_SHARE = 0.8  # of the time is for epochs; the rest is for checks, the test and figures
_EPOCHS = (5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 60)
_FEWEST_EPOCHS, _FEWEST_STEPS = 12, 250  # if time is short, images are read at a lower resolution
_STEPS = 600  # of optimisation, which usually suffice
_EVERY = 4  # epochs with the same patches, where time is short
_MB, _GB = 2**20, 2**30


@dataclass(frozen=True)
class Proposal:
    """A config for some data.

    Attributes:
        choices: all settings that are not left at their defaults.
        facts: sentences about the data and the expected cost.
        warnings: sentences about what may go wrong.
    """

    choices: list[Choice]
    facts: list[str]
    warnings: list[str]


@dataclass(frozen=True)
class _Plan:
    """A grid, and how often its patches are looked at; the seconds are those of an epoch."""

    grid: Grid
    every: int
    patches: float
    keep: int
    cost: Cost
    seconds: float


def propose(
    data: FoundData,
    found: Survey,
    settings: Sequence[Choice],
    measure: Measure,
    *,
    minutes: float,
    memory: int | None,
    object_size: int | None = None,
) -> Proposal:
    """Choose a config.

    Args:
        data: images and labels.
        found: facts of the files.
        settings: settings of the section ``data``.
        measure: measures the cost of settings.
        minutes: time that the training may take.
        memory: bytes of memory of this machine; None if unknown.
        object_size: usual size in pixels of what matters in an image, if it is known.
    """
    tasks, warnings = task_choices(data)
    counts = split_counts(data)
    encoder = _encoder(found)
    budget = minutes * 60 * _SHARE
    batch = 4 if counts["train"] < 100 else 8 if counts["train"] < 400 else 16
    enough = max(_FEWEST_EPOCHS, _FEWEST_STEPS * batch / max(counts["train"], 1))
    ways = grids(found, object_size)
    keys = [*settings, *patch_choices(found, ways[0]), *encoder, *tasks]
    keys.append(Choice(("select", "keep"), _keep(found, ways[0])))
    cost = measure(nested(keys))  # of a patch, which is the same at any resolution
    plan: _Plan | None = None
    for grid, every in product(ways, (1, _EVERY)):
        n, keep = grid.mean_patches(found), _keep(found, grid)
        seconds = cost.epoch_seconds(
            train=counts["train"],
            validation=counts["val"],
            patches=n,
            keep=min(keep, n),
            every=every,
        )
        plan = _Plan(grid, every, n, keep, cost, seconds)
        if budget / max(seconds, 1e-6) >= enough:
            break
    assert plan is not None
    load, batch, peak = _loading(found, plan, batch, memory)
    useful = _STEPS * (2 if plan.every > 1 else 1) * batch / max(counts["train"], 1)
    epochs = _epochs(budget / max(plan.seconds, 1e-6), useful)
    total = epochs * plan.seconds
    if total > 1.5 * budget:
        remedy = "store features first (`ips slides features`)" * (found.kind == "slides")
        warnings.append(
            f"{epochs} epochs take about {rough_duration(total)} on this machine: "
            f"{remedy or 'start with fewer images'}, or use a GPU"
        )
    facts = [
        f"{counts['train']} images to train, {counts['val']} to validate, {counts['test']} to test",
        f"about {round(plan.patches):,} patches per image",
        f"expected on this machine: {rough_duration(plan.seconds)} per epoch, "
        f"{rough_duration(total)} in all, {peak / _GB:.1f} GB of memory",
    ]
    blank = [
        Choice(
            ("select", "skip_blank"),
            True,
            f"about {plan.cost.blank:.0%} of the patches have a single colour",
        )
    ]
    again = Choice(
        ("select", "every"),
        plan.every,
        "epochs that learn from the same M patches once training has begun, to save time",
    )
    choices = [
        *settings,
        *patch_choices(found, plan.grid),
        *encoder,
        Choice(("select", "keep"), plan.keep, "M: the patches that the model learns from"),
        Choice(("select", "chunk"), max(2 * plan.keep, 64), "I: patches compared at a time"),
        *([again] if plan.every > 1 else []),
        load,
        *(blank if plan.cost.blank > 0.1 else []),
        *_augment(found),
        Choice(("train", "epochs"), epochs, f"about {rough_duration(total)} on this machine"),
        Choice(("train", "batch"), batch, f"{math.ceil(counts['train'] / batch)} steps an epoch"),
        _learning_rate(found),
        *tasks,
        Choice(("readout",), data.tasks[0], "classifies single patches, for figures"),
    ]
    return Proposal(choices, facts, warnings)


def _encoder(found: Survey) -> list[Choice]:
    name = ("encoder", "name")
    if found.kind == "features":
        return [
            Choice(name, "projector", f"the files hold {found.channels[0]} features per patch"),
            Choice(("encoder", "dim"), 128 if found.channels[0] < 1000 else 256),
        ]
    return [
        Choice(name, "efficientnet-lite0", "pre-trained on ImageNet, included in ips"),
        Choice(("encoder", "stages"), 5, "of 7: a quarter faster, and keeps small details"),
    ]


def _keep(found: Survey, grid: Grid) -> int:
    """M: a twentieth of N as a power of two, or a quarter of the rows of a feature file."""
    n = grid.mean_patches(found)
    share, least, most = (n / 4, 16, 256) if found.kind == "features" else (n / 20, 8, 32)
    return int(min(max(2 ** round(math.log2(max(share, 1))), least), most))


def _loading(found: Survey, plan: _Plan, batch: int, memory: int | None) -> tuple[Choice, int, int]:
    """What is in memory at a time, the batch size that fits, and the peak of memory."""
    limit = 0.6 * (memory or 4 * _GB)

    def peak(load: str, images: int) -> int:
        keep = min(plan.keep, plan.patches)
        return plan.cost.peak_bytes(batch=images, patches=plan.patches, keep=keep, load=load)

    load = "lazy" if found.kind == "slides" or peak("eager", batch) > limit else "eager"
    while batch > 1 and peak(load, batch) > limit:
        batch //= 2
    size = round(plan.patches * plan.cost.patch / _MB)
    reason = {
        "eager": f"the patches of a batch fit into memory ({size} MB per image)",
        "lazy": f"only some patches are in memory at a time (all of an image: {size} MB)",
    }[load]
    return Choice(("select", "load"), load, reason), batch, peak(load, batch)


def _epochs(affordable: float, useful: float) -> int:
    """As many epochs as are useful, at least ten of them, and affordable."""
    wanted = min(affordable, max(10, useful))
    return max((e for e in _EPOCHS if e <= wanted), default=_EPOCHS[0])


def _augment(found: Survey) -> list[Choice]:
    key = ("augment", "kind")
    if found.kind == "features":
        return []
    if found.kind == "slides":
        return [Choice(key, "slides", "random turns, mirroring, stains and blur in training")]
    if found.documents:
        return [Choice(key, "documents", "mostly white: random colours and blur, no mirroring")]
    reason = "random mirroring, colours and blur; documents for images with writing"
    return [Choice(key, "photographs", reason)]


def _learning_rate(found: Survey) -> Choice:
    key = ("train", "lr")
    if found.kind == "features":
        return Choice(key, 0.001, "the usual rate without pre-training")
    return Choice(key, 0.0005, "low, since the encoder is pre-trained")
