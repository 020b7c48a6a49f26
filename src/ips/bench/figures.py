"""Charts of the benchmarks: bars for speed, lines for memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from ips.explain.colours import INK, MUTED, RULE
from ips.files import atomic_write

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#7b68ee", "#717581")
_WIDTH = 9.5  # inches


def ratio_bars(cases: Sequence[Mapping[str, Any]], *, title: str) -> Figure:
    """Median speed of every arm in the results of `compare_arms`, with the range of the rounds."""
    bars = {
        f"{case['case']}: {arm}": ratio for case in cases for arm, ratio in case["ratios"].items()
    }
    figure, axes = _chart(title, height=2 + 0.5 * len(bars), left=0.36)
    axes.barh("baseline: the paper as written", 1, color=COLOURS[-1], height=0.62)
    medians = [ratio.median for ratio in bars.values()]
    ranges = [(ratio.median - ratio.min, ratio.max - ratio.median) for ratio in bars.values()]
    drawn = axes.barh(list(bars), medians, xerr=np.transpose(ranges), color=COLOURS[0], height=0.62)
    axes.bar_label(drawn, fmt="{:.2f}×", padding=5, color=INK)
    axes.margins(x=0.15)
    axes.set_xlabel("times as fast (median of rounds; the line spans all rounds)", color=MUTED)
    _style_bars(axes)
    return figure


def rate_bars(rates: Mapping[str, Mapping[str, float]], *, title: str) -> Figure:
    """Patches per second: a group of bars for each reader, with one bar for each order."""
    orders = list(next(iter(rates.values())))
    step = 0.8 / len(orders)
    figure, axes = _chart(title, height=1.7 + 0.75 * len(rates), left=0.2)
    for number, order in enumerate(orders):
        places = np.arange(len(rates)) + (number - (len(orders) - 1) / 2) * step
        lengths = [rate[order] for rate in rates.values()]
        drawn = axes.barh(places, lengths, height=0.9 * step, color=COLOURS[number], label=order)
        axes.bar_label(drawn, fmt="{:,.0f}", padding=3, size=8, color=INK)
    axes.margins(x=0.14)
    axes.set_xlabel("patches per second", color=MUTED, loc="left")
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_yticks(range(len(rates)), list(rates))
    _style_bars(axes)
    # Below the axes, beside the unit, where it covers no bar.
    below = (1.0, -0.3 / figure.get_figheight())
    axes.legend(frameon=False, loc="upper right", bbox_to_anchor=below, ncols=len(orders))
    return figure


def memory_lines(
    peaks: Mapping[str, Mapping[int, float]], *, title: str, stopped: Mapping[str, str]
) -> Figure:
    """Gigabytes against the side of the image in pixels, per arm; notes why arms were stopped."""
    figure, axes = _chart(title, height=5.2, left=0.1)
    for colour, (arm, line) in zip(COLOURS, peaks.items(), strict=False):
        if line:
            sides, values = list(line), list(line.values())
            label = f"{arm}, {values[-1]:.2f} GB at {sides[-1]:,} px"
            axes.plot(sides, values, color=colour, lw=2, marker="o", ms=5, label=label)
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.set_xlabel("side of the image, px", color=MUTED)
    axes.set_ylabel("peak memory of the process, GB", color=MUTED)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.legend(frameon=False, labelcolor="linecolor")
    for number, text in enumerate(stopped.values()):
        figure.text(0.1, 0.015 + 0.035 * number, text, size=8.5, color=MUTED)
    return figure


def add_axes(
    figure: Figure, box: tuple[float, float, float, float], *, title: str, size: float = 12
) -> Axes:
    """Axes in a plain style; ``box`` is x, y, width and height in inches from the lower left."""
    (width, height), (x, y, w, h) = figure.get_size_inches(), box
    axes = figure.add_axes((x / width, y / height, w / width, h / height))
    axes.set_title(title, loc="left", size=size, weight="bold", color=INK, pad=size)
    axes.set_axisbelow(True)
    axes.grid(color=RULE, lw=0.7)
    axes.tick_params(labelsize=0.75 * size, colors=MUTED, length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(RULE)
    return axes


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PNG."""
    with atomic_write(path) as stream:
        figure.savefig(stream, format="png")


def _chart(title: str, *, height: float, left: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(_WIDTH, height), dpi=150, facecolor="white")
    box = (left * _WIDTH, 0.75, (0.97 - left) * _WIDTH, height - 1.35)
    return figure, add_axes(figure, box, title=title)


def _style_bars(axes: Axes) -> None:
    axes.invert_yaxis()
    axes.tick_params(axis="y", labelsize=10, colors=INK)
    axes.grid(visible=False, axis="y")
