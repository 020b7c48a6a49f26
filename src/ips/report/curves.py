"""The log of a training, and the figure of its curves: loss, learning rate, training scores."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.ticker import MaxNLocator

from ips.errors import RunError, because, shown
from ips.explain.colours import MUTED, PALETTE, shortened
from ips.explain.figures.page import Page, style_epoch_axes
from ips.statistics import Floats


def read_log(path: Path, *, required: Sequence[str] = ("epoch", "loss")) -> dict[str, Floats]:
    """The columns of ``metrics.csv``, nan for an empty field; empty if there is no epoch yet."""
    if not path.is_file():
        return {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = because(error, remedy="delete it, and the log starts with the next epoch")
        raise RunError(f"{path}: cannot be read {reason}") from error
    if not rows:
        return {}
    if None in rows[0]:
        raise RunError(f"{path}: a line has more cells than the header: it is not a run's log")
    if missing := set(required) - set(rows[0]):
        raise RunError(f"{path}: has no column {', '.join(sorted(missing))}: it is not a run's log")
    try:
        columns = {
            name: np.array([float("nan" if row[name] == "" else row[name]) for row in rows])
            for name in rows[0]
        }
        if not np.isfinite(columns["epoch"]).all():
            raise ValueError("an epoch without a number")
        return columns
    except (TypeError, ValueError) as error:
        reason = shown(str(error), quote=False)
        raise RunError(f"{path}: a value is not a number ({reason}): delete it") from error


def scores_on(split: str, log: dict[str, Floats]) -> dict[str, Floats]:
    """The score of each task on the images of a split, train or validation, by epoch."""
    prefix = f"{split}_"
    return {k.removeprefix(prefix): v for k, v in log.items() if k.startswith(prefix)}


def losses(log: dict[str, Floats]) -> dict[str, Floats]:
    """The loss by epoch: on the training images, and on validation images if there are any."""
    columns = {"training": "loss", "validation": "loss_validation"}
    return {name: log[column] for name, column in columns.items() if column in log}


def score_curves(log: dict[str, Floats]) -> dict[str, dict[str, Floats]]:
    """Curves of scores by chart: one of all tasks, or one per task to compare with validation."""
    train, held_out = scores_on("train", log), scores_on("validation", log)
    if not held_out:
        return {"Score on the training images": train} if train else {}
    return {
        f"Score of {task}": {"training": values, "validation": held_out[task]}
        for task, values in train.items()
        if task in held_out
    }


def draw_curves(log: Path, path: Path) -> None:
    """Draw the training log as a PNG.

    It is a CSV with ``epoch``, ``loss``, ``lr``, ``train_<task>``, and with validation images
    ``loss_validation`` and ``validation_<task>``.
    The number beside a task is its last score on validation images if there are any, otherwise on
    training images.
    """
    columns = read_log(log, required=["epoch", "loss", "lr"])
    if not columns:
        raise RunError(f"{log}: has no epochs, so there are no curves to draw")
    epoch, scores = columns["epoch"], scores_on("train", columns)
    held_out = scores_on("validation", columns)
    marker = "o" if len(epoch) < 2 else ""  # a line through a single epoch would be invisible
    names = {task: shortened(task, 24) for task in scores}
    labels = 0.6 + 0.095 * max(map(len, names.values()), default=0)
    page = Page(10, 4)
    left, right = page.axes(0.6, 0.6, 3.7, 2.85), page.axes(5.4, 0.6, 4.5 - labels, 2.85)

    both = "loss_validation" in columns
    style_epoch_axes(
        left, "Training and validation loss (dashed)" if both else "Training loss", epoch
    )
    left.plot(epoch, columns["loss"], color=PALETTE[0], lw=2, marker=marker, ms=4, clip_on=False)
    if both:
        held = columns["loss_validation"]
        left.plot(epoch, held, color=PALETTE[0], lw=1.2, ls=(0, (3, 2)), marker=marker, ms=4)
    rate = left.twinx()
    rate.plot(epoch, columns["lr"], color=MUTED, lw=0.9, ls=(0, (4, 3)), marker=marker)
    # Room below 0, so that its tick label does not touch that of the last epoch.
    known = columns["lr"][np.isfinite(columns["lr"])]
    highest = float(np.max(known, initial=0)) or 1.0
    rate.set_ylim(-0.05 * highest, 1.05 * highest)
    rate.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10]))
    rate.tick_params(labelsize=8, colors=MUTED, length=0)
    rate.ticklabel_format(axis="y", style="sci", scilimits=(-2, 3))
    rate.yaxis.get_offset_text().set(size=8, color=MUTED)
    rate.set_ylabel("learning rate (grey)", size=8.5, color=MUTED)
    rate.spines[:].set_visible(False)

    title = "Score on training and validation images (dashed)"
    style_epoch_axes(right, title if held_out else "Score on the training images", epoch)
    # R² may be far below 0 at first.
    lowest = min(
        (float(np.nanmin(s, initial=0)) for s in (*scores.values(), *held_out.values())), default=0
    )
    low = max(lowest, -1.0)
    right.set_ylim(low, 1.02)
    ends = []
    for number, (task, values) in enumerate(scores.items()):
        colour = PALETTE[number % len(PALETTE)]
        right.plot(epoch, values, color=colour, lw=2, marker=marker, ms=4, clip_on=False)
        if task in held_out:
            dashes = (0, (3, 2))
            right.plot(epoch, held_out[task], color=colour, lw=1.2, ls=dashes, marker=marker, ms=4)
        labelled = held_out.get(task, values)
        known = labelled[np.isfinite(labelled)]
        if len(known):
            ends.append((float(known[-1]), task, colour))
    ends.sort()
    heights = spread([end for end, *_ in ends], apart=0.065 * (1 - low), low=low, high=1.0)
    for height, (end, task, colour) in zip(heights, ends, strict=True):
        y = 0.6 + 2.85 * (1 - (height - low) / (1.02 - low))
        text = f"{names[task]}  {end:.2f}"
        page.write(10 - labels, y, text, va="center", size=9, weight="bold", color=colour)
    page.save(path)


def spread(values: list[float], *, apart: float, low: float, high: float) -> list[float]:
    """Ascending ``values``, moved as little as needed to be ``apart`` from each other.

    >>> [round(v, 2) for v in spread([0.5, 0.5, 0.9], apart=0.1, low=0, high=1)]
    [0.5, 0.6, 0.9]
    """
    apart = min(apart, (high - low) / max(len(values) - 1, 1))
    placed: list[float] = []
    for value in values:
        placed.append(max(value, placed[-1] + apart if placed else low))
    ceiling = high
    for i in reversed(range(len(placed))):
        placed[i] = min(placed[i], ceiling)
        ceiling = placed[i] - apart
    return placed
