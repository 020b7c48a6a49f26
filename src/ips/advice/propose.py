"""Choose a value for every setting from the data and this machine, each with a reason.

Letters: N patches of an image, M kept, I per step of the selection.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import Any

from ips.advice.choices import Choice, nested, split_counts, task_choices
from ips.advice.cost import Cost
from ips.advice.found import FoundData
from ips.advice.survey import FileFacts, Survey

#: Measures the cost of these settings on a typical image.
Measure = Callable[[Mapping[str, Any]], Cost]

_SHARE = 0.8  # of the time is for epochs; the rest is for checks, the test and figures
_EPOCHS = (5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 60)
_FEWEST_EPOCHS, _FEWEST_STEPS = 12, 250  # if time is short, images are read at a lower resolution
_STEPS = 600  # of optimisation, which usually suffice
_EVERY = 4  # epochs with the same patches, where time is short
_SIDES = (32, 64, 96, 128, 160, 192, 224)  # of a patch
_ACROSS = 12  # patches that the shorter side of an image is divided into
_FEWEST_ACROSS = 6
_SLIDE_SIDE = 128  # of a patch of a slide
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
class _Grid:
    """Patch size and stride in pixels as they are read, and full-resolution pixels of one."""

    size: int
    stride: int
    downsample: float = 1.0

    def patches(self, facts: FileFacts) -> int:
        """N of an image, with padded edges."""
        if facts.kind == "features":
            return facts.patches
        sides = facts.width / self.downsample, facts.height / self.downsample
        across, down = (max(math.ceil((s - self.size) / self.stride), 0) + 1 for s in sides)
        return across * down


@dataclass(frozen=True)
class _Plan:
    """A grid, and how often its patches are looked at; the seconds are those of an epoch."""

    grid: _Grid
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
    plan: _Plan | None = None
    costs: dict[int, Cost] = {}  # a patch of one size costs the same at any resolution
    for grid, every in product(_grids(found, object_size), (1, _EVERY)):
        n = fmean(grid.patches(facts) for facts in found.facts.values())
        keep = _keep(n, features=found.kind == "features")
        if grid.size not in costs:
            keys = [*settings, *_patches(found, grid), *encoder, *tasks]
            costs[grid.size] = measure(nested([*keys, Choice(("select", "keep"), keep)]))
        cost = costs[grid.size]
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
            f"{epochs} epochs take about {duration(total)} on this machine: "
            f"{remedy or 'start with fewer images'}, or use a GPU"
        )
    facts = [
        f"{counts['train']} images to train, {counts['val']} to validate, {counts['test']} to test",
        f"about {round(plan.patches):,} patches per image",
        f"expected on this machine: {duration(plan.seconds)} per epoch, {duration(total)} in all, "
        f"{peak / _GB:.1f} GB of memory",
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
        *_patches(found, plan.grid),
        *encoder,
        Choice(("select", "keep"), plan.keep, "M: the patches that the model learns from"),
        Choice(("select", "chunk"), max(2 * plan.keep, 64), "I: patches compared at a time"),
        *([again] if plan.every > 1 else []),
        load,
        *(blank if plan.cost.blank > 0.1 else []),
        *_augment(found),
        Choice(("train", "epochs"), epochs, f"about {duration(total)} on this machine"),
        Choice(("train", "batch"), batch, f"{math.ceil(counts['train'] / batch)} steps an epoch"),
        _learning_rate(found),
        *tasks,
        Choice(("readout",), data.tasks[0], "classifies single patches, for figures"),
    ]
    return Proposal(choices, facts, warnings)


def duration(seconds: float) -> str:
    """A time in words.

    >>> duration(4), duration(75), duration(5400)
    ('4 s', '1 min', '1.5 h')
    """
    if seconds < 60:
        return f"{max(round(seconds), 1)} s"
    return f"{round(seconds / 60)} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def _grids(found: Survey, object_size: int | None) -> Iterator[_Grid]:
    """Ways to cut the images, the one with the most patches first."""
    if found.kind == "features":
        yield _Grid(1, 1)
        return
    downsample = 1.0
    usual = _SLIDE_SIDE if found.kind == "slides" else found.side / _ACROSS
    side = 1.5 * object_size if object_size else usual
    if object_size and side > _SIDES[-1]:
        downsample, side = side / 128, 128
    smallest = 0 if object_size or found.side < 300 else 64
    size = min((s for s in _SIDES if s >= smallest), key=lambda s: abs(s - side))
    if found.kind == "images":
        yield _Grid(size, size * 3 // 4, downsample)
    for factor in _downsamples(found):
        coarser = downsample * factor
        if factor > 1 and found.side / coarser < _FEWEST_ACROSS * size:
            return
        yield _Grid(size, size, coarser)


def _downsamples(found: Survey) -> list[float]:
    """Resolutions that all files can be read at, the full one first."""
    if found.kind == "slides" and any(facts.mpp is None for facts in found.facts.values()):
        return _levels(found)
    halves = [float(2**power) for power in range(12)]
    if found.kind == "slides":
        return halves
    return sorted([*halves, *(1.5 * factor for factor in halves)])


def _levels(found: Survey) -> list[float]:
    """Downsamples of the levels that all slides have."""
    fewest = min(found.facts.values(), key=lambda facts: len(facts.downsamples))
    return list(fewest.downsamples)


def _patches(found: Survey, grid: _Grid) -> list[Choice]:
    if found.kind == "features":
        return []
    read = round(found.side / grid.downsample)
    across = f"about {max(round(read / grid.size), 1)} across the shorter side of {read} px"
    choices = [
        Choice(("patches", "size"), grid.size, f"pixels; {across}. Give --object PX for others"),
        Choice(("patches", "edge"), "fit", "every pixel is looked at, nothing is padded"),
    ]
    if grid.stride != grid.size:
        reason = "patches overlap, so that few objects are cut"
        choices.insert(1, Choice(("patches", "stride"), grid.stride, reason))
    if grid.downsample > 1 or found.kind == "slides":
        choices.append(_resolution(found, grid.downsample))
    if sorted(found.channels) == [1, 3]:
        reason = "some files are grey and some are in colour"
        choices.append(Choice(("patches", "channels"), "rgb", reason))
    return choices


def _resolution(found: Survey, downsample: float) -> Choice:
    share = "2/3" if downsample == 1.5 else f"1/{downsample:.3g}"
    reason = f"{share} of the full size, or training would take too long"
    if downsample == 1:
        reason = "the full resolution"
    known = [facts.mpp for facts in found.facts.values() if facts.mpp is not None]
    if found.kind == "slides" and len(known) == len(found.facts):
        finest = max(known)  # what all slides have
        value = float(f"{finest * downsample:.3g}")
        return Choice(("patches", "mpp"), value, f"micrometres per pixel: {reason}")
    if found.kind == "slides":
        level = _levels(found).index(downsample)
        return Choice(("patches", "level"), level, f"level of the pyramid: {reason}")
    return Choice(("patches", "scale"), float(f"{1 / downsample:.3g}"), reason)


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


def _keep(n: float, *, features: bool) -> int:
    """M: a twentieth of N as a power of two, or a quarter of the rows of a feature file."""
    share, least, most = (n / 4, 16, 256) if features else (n / 20, 8, 32)
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
