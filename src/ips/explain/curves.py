"""Training curves: how the loss fell and the scores rose."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.ticker import MaxNLocator

from ips.errors import RunError
from ips.explain.page import MUTED, PALETTE, Page, over_epochs, shortened

Values = npt.NDArray[np.float64]

_PREFIX = "train_"


def draw_curves(metrics_csv: Path, path: Path) -> None:
    """A PNG of the loss and of the training score of each task, epoch by epoch.

    Args:
        metrics_csv: with columns ``epoch``, ``loss``, ``lr`` and a ``train_<task>`` per task.
        path: of the PNG.
    """
    columns = _read(metrics_csv)
    epoch = columns["epoch"]
    scores = {k.removeprefix(_PREFIX): v for k, v in columns.items() if k.startswith(_PREFIX)}
    names = {task: shortened(task, 24) for task in scores}
    labels = 0.6 + 0.095 * max(map(len, names.values()), default=0)
    page = Page(10, 4)
    left, right = page.axes(0.6, 0.6, 3.7, 2.85), page.axes(5.4, 0.6, 4.5 - labels, 2.85)

    over_epochs(left, "Training loss", epoch)
    left.plot(
        epoch, columns["loss"], color=PALETTE[0], lw=2, marker=_marker(epoch), ms=4, clip_on=False
    )
    rate = left.twinx()
    rate.plot(epoch, columns["lr"], color=MUTED, lw=0.9, ls=(0, (4, 3)), marker=_marker(epoch))
    # Room below 0, where its number would meet that of the last epoch.
    highest = float(np.nanmax(columns["lr"])) or 1.0
    rate.set_ylim(-0.05 * highest, 1.05 * highest)
    rate.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10]))
    rate.tick_params(labelsize=8, colors=MUTED, length=0)
    rate.ticklabel_format(axis="y", style="sci", scilimits=(-2, 3))
    rate.yaxis.get_offset_text().set(size=8, color=MUTED)
    rate.set_ylabel("learning rate (dashed)", size=8.5, color=MUTED)
    rate.spines[:].set_visible(False)

    over_epochs(right, "Score on the training images", epoch)
    right.set_ylim(0, 1.02)
    ends = []
    for number, (task, values) in enumerate(scores.items()):
        colour = PALETTE[number % len(PALETTE)]
        right.plot(epoch, values, color=colour, lw=2, marker=_marker(epoch), ms=4, clip_on=False)
        known = values[np.isfinite(values)]
        if len(known):
            ends.append((float(known[-1]), task, colour))
    ends.sort()
    heights = spread([end for end, *_ in ends], apart=0.065, low=0.0, high=1.0)
    for height, (end, task, colour) in zip(heights, ends, strict=True):
        y = 0.6 + 2.85 * (1 - height / 1.02)
        text = f"{names[task]}  {end:.2f}"
        page.write(10 - labels, y, text, va="center", size=9, weight="bold", color=colour)
    page.save(path)


def spread(values: list[float], *, apart: float, low: float, high: float) -> list[float]:
    """Ascending ``values`` moved no further than it takes to be ``apart`` from each other.

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


def _marker(epoch: Values) -> str:
    """A line through a single epoch would not be seen."""
    return "o" if len(epoch) < 2 else ""


def _read(path: Path) -> dict[str, Values]:
    if not path.is_file():
        raise RunError(f"{path}: there is no such file, so there are no curves to draw")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        raise RunError(f"{path}: no epoch is in it yet, train for at least one")
    missing = {"epoch", "loss", "lr"} - set(rows[0])
    if missing:
        raise RunError(f"{path}: has no column {', '.join(sorted(missing))}: it is not a run's log")
    try:
        return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}
    except (TypeError, ValueError) as error:
        raise RunError(f"{path}: a value in it is no number ({error})") from error
