"""Choose a value for every setting from the data and this machine, each with a reason.

Letters: N patches of an image, M kept, I per step of the selection.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from ips.advice.choices import Choice, nested, overridden, split_counts, task_choices
from ips.advice.cost import Cost
from ips.advice.found import FoundData
from ips.advice.grids import Grid, grids, patch_choices
from ips.advice.survey import Survey
from ips.config import Config
from ips.config.section import Section
from ips.config_io import override, parse_config
from ips.progress import rough_duration

#: Measures the cost of these settings on a typical image.
Measure = Callable[[Mapping[str, Any]], Cost]

_SHARE = 0.8  # of the time is for epochs; the rest is for checks, the test and figures
_EPOCHS = (5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 60)
_FEWEST_EPOCHS, _FEWEST_STEPS = 12, 250  # if time is short, images are read at a lower resolution
_STEPS = 600  # of optimisation, which usually suffice
_REFRESH = 0.1  # share of patches that an epoch scores again, where time is short
_MB, _GB = 2**20, 2**30
_NUMBERS = ("regression", "survival")  # kinds of tasks without classes


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
    """A grid, and the share of its patches scored again; the seconds are those of an epoch."""

    grid: Grid
    refresh: float
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
    overrides: Sequence[str] = (),
) -> Proposal:
    """Choose a config.

    Args:
        data: images and labels.
        found: facts of the files.
        settings: settings of the section ``data``.
        measure: measures the cost of settings.
        minutes: time that the training may take.
        memory: bytes of memory of this machine; None if unknown.
        object_size: usual size in pixels of what matters in an image; by default that of the boxes
            of ``data``, if there are any.
        overrides: settings that are given, such as ``train.epochs=5``; the others suit them.
    """
    tasks, warnings = task_choices(data)
    given = parse_config(override(nested([*settings, *tasks]), overrides), source="--set")
    if given.method in ("cnn", "dps") or (
        _is_given(given.patches, "tissue") and not given.patches.tissue
    ):
        found = replace(found, tissue=None)  # all patches
    counts = split_counts(data)
    encoder = _encoder(found)
    budget = minutes * 60 * _SHARE
    kinds = {c.key[1]: c.value for c in tasks if c.key[2] == "kind"}
    usual = 4 if counts["train"] < 100 else 8 if counts["train"] < 400 else 16
    if "survival" in kinds.values():  # its images are compared within a batch
        usual = 16
    batch = _given(given.train, "batch", usual)
    enough = max(_FEWEST_EPOCHS, _FEWEST_STEPS * batch / max(counts["train"], 1))
    size, objects = _object_size(data, object_size)
    ways = grids(found, size, given.patches)
    keys = [*settings, *patch_choices(found, ways[0], given.patches, objects), *encoder, *tasks]
    keys.append(Choice(("select", "keep"), _keep(found, ways[0], given)))
    cost = measure(_measurable(nested(keys), given, overrides))  # the same at any resolution
    plan: _Plan | None = None
    is_given = _is_given(given.select, "refresh")
    shares = (given.select.refresh,) if is_given else (1.0, _REFRESH)
    for grid, refresh in product(ways, shares):
        n, keep = grid.mean_patches(found), _keep(found, grid, given)
        seconds = cost.epoch_seconds(
            train=counts["train"],
            validation=counts["val"],
            patches=n,
            keep=min(keep, n),
            refresh=refresh,
        )
        plan = _Plan(grid, refresh, n, keep, cost, seconds)
        if budget / max(seconds, 1e-6) >= enough:
            break
    assert plan is not None
    load, batch, peak = _loading(found, plan, batch, memory, given)
    useful = _STEPS * (2 if plan.refresh < 1 else 1) * batch / max(counts["train"], 1)
    start = cost.start_seconds(train=counts["train"], patches=plan.patches)
    chosen = _epochs(max(budget - start, 0) / max(plan.seconds, 1e-6), useful)
    epochs = _given(given.train, "epochs", chosen)
    total = start + epochs * plan.seconds
    if total > 1.5 * budget:
        remedy = "store features first (`ips slides features`)" * (found.kind == "slides")
        warnings.append(
            f"{epochs} epochs take about {rough_duration(total)} on this machine: "
            f"{remedy or 'start with fewer images'}, or use a GPU"
        )
    facts = [
        *(f"{c.key[1]} is a {c.value} task: {c.reason}" for c in tasks if c.value in _NUMBERS),
        f"{counts['train']} images to train, {counts['val']} to validate, {counts['test']} to test",
        f"about {round(plan.patches):,} patches per image{' with tissue' * bool(found.tissue)}",
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
        ("select", "refresh"),
        plan.refresh,
        "share of patches that an epoch scores again once training has begun, to save time",
    )
    choices = [
        *settings,
        *patch_choices(found, plan.grid, given.patches, objects),
        *encoder,
        Choice(("select", "keep"), plan.keep, "M: the patches that the model learns from"),
        Choice(("select", "chunk"), max(2 * plan.keep, 64), "I: patches compared at a time"),
        *([again] if plan.refresh < 1 else []),
        load,
        *(blank if plan.cost.blank > 0.1 else []),
        *_augment(found),
        Choice(("train", "epochs"), epochs, f"about {rough_duration(total)} on this machine"),
        Choice(("train", "batch"), batch, f"{math.ceil(counts['train'] / batch)} steps an epoch"),
        _learning_rate(found),
        *tasks,
        *(
            Choice(("readout",), task, "classifies single patches, for figures")
            for task in [name for name, kind in kinds.items() if kind not in _NUMBERS][:1]
        ),
    ]
    return Proposal(overridden(choices, overrides), facts, warnings)


def _is_given(section: Section, name: str) -> bool:
    return name in section.model_fields_set


def _given(section: Section, name: str, chosen: int) -> int:
    """A setting of the command line, or else the chosen one."""
    return int(getattr(section, name)) if _is_given(section, name) else chosen


def _measurable(
    values: Mapping[str, Any], given: Config, overrides: Sequence[str]
) -> Mapping[str, Any]:
    """The settings to measure; methods without patches count as IPS."""
    return values if given.method in ("cnn", "dps") else override(values, overrides)


def _object_size(data: FoundData, given: int | None) -> tuple[int | None, str]:
    """The usual size of objects in pixels, None if it is unknown; and where it comes from."""
    if given is not None:
        return given, f"for objects of about {given} px, as given with --object"
    if data.boxes is None:
        return None, "if objects are larger or smaller, run init again with --object PX"
    side, table = data.boxes.side, data.boxes.table.name
    return side, f"for objects of about {side} px, as in {table}; --object PX for others"


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


def _keep(found: Survey, grid: Grid, given: Config) -> int:
    """M: a twentieth of N as a power of two, or a quarter of the rows of a feature file."""
    n = grid.mean_patches(found)
    if _is_given(given.select, "keep"):
        return given.select.keep or math.ceil(n)
    share, least, most = (n / 4, 16, 256) if found.kind == "features" else (n / 20, 8, 32)
    return int(min(max(2 ** round(math.log2(max(share, 1))), least), most))


def _loading(
    found: Survey, plan: _Plan, batch: int, memory: int | None, given: Config
) -> tuple[Choice, int, int]:
    """What is in memory at a time, the batch size that fits, and the peak of memory."""
    limit = 0.6 * (memory or 4 * _GB)
    largest = max(plan.grid.patches(facts) for facts in found.facts.values())

    def peak(load: str, images: int) -> int:
        keep = min(plan.keep, largest)
        return plan.cost.peak_bytes(batch=images, patches=largest, keep=keep, load=load)

    load = "lazy" if found.kind == "slides" or peak("eager", batch) > limit else "eager"
    if _is_given(given.select, "load"):
        load = given.select.load
    while batch > 1 and peak(load, batch) > limit and not _is_given(given.train, "batch"):
        batch //= 2
    size = round(plan.patches * plan.cost.patch / _MB)
    reason = f"only some patches are in memory at a time (all of an image: {size} MB)"
    if load == "eager":
        reason = f"the patches of a batch fit into memory ({size} MB per image)"
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
