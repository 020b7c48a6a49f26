"""The scores of a search, by trial and by setting."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import AutoLocator, MaxNLocator

from ips.explain.colours import INK, MUTED, PALETTE, RULE
from ips.explain.figures.page import MARGIN, Page
from ips.tuning.trial import Trial

_WIDTH, _HEIGHT, _COLUMNS = 3.4, 2.6, 3
_FEW = 4  # whole numbers that have a tick each


def draw_trials(path: Path, trials: Sequence[Trial]) -> None:
    """Plot the score of every trial, over its number and over each setting."""
    scored = [trial for trial in trials if trial.score is not None]
    keys = list(scored[0].settings)
    rows = -(-(1 + len(keys)) // _COLUMNS)
    page = Page(2 * MARGIN + _COLUMNS * _WIDTH, 2 * MARGIN + rows * _HEIGHT)
    scores = np.array([trial.score for trial in scored], dtype=np.float64)
    best = int(scores.argmax())
    for number, key in enumerate(["trial", *keys]):
        row, column = divmod(number, _COLUMNS)
        x, y = MARGIN + column * _WIDTH, MARGIN + row * _HEIGHT
        axes = page.axes(x + 0.5, y + 0.35, _WIDTH - 0.8, _HEIGHT - 1.0)
        places = _places(axes, [t.settings.get(key, str(t.number)) for t in scored])
        if key == "trial":
            highest = np.maximum.accumulate(scores)
            axes.plot(places, highest, color=RULE, lw=1.5, drawstyle="steps-post")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6, min_n_ticks=1))
        axes.margins(0.08, 0.12)
        axes.scatter(places, scores, s=18, color=PALETTE[0], alpha=0.7, lw=0)
        axes.scatter(places[best], scores[best], s=60, facecolor="none", edgecolor=INK, lw=1.2)
        axes.yaxis.set_major_locator(AutoLocator())
        axes.set_axisbelow(True)
        axes.grid(axis="y", color=RULE, lw=0.6)
        axes.tick_params(labelsize=8, colors=MUTED, length=0)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.set_title(key, loc="left", size=9, weight="bold", color=INK)
    page.write(MARGIN, page.height - MARGIN, "validation score; the best trial is circled", size=8)
    page.save(path)


def _places(axes: Axes, values: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Where values are on the x axis: as numbers if they are, else side by side."""
    try:
        numbers = np.array([float(value) for value in values])
    except ValueError:
        names = sorted(set(values))
        axes.set_xticks(range(len(names)), names)
        axes.set_xlim(-0.5, len(names) - 0.5)
        return np.array([names.index(value) for value in values], dtype=np.float64)
    if numbers.min() > 0 and numbers.max() >= 8 * numbers.min():
        axes.set_xscale("log")
    elif len(chosen := np.unique(numbers)) <= _FEW and not (chosen % 1).any():
        axes.set_xticks(chosen)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=4))
    return numbers
