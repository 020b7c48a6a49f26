"""Charts of the benchmarks: bars for speed, lines for memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from ips.explain.colours import INK, MUTED, RULE
from ips.files import atomic_write

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#7b68ee", "#717581")
_WIDTH = 9.5  # inches


def ratio_bars(cases: Sequence[Mapping[str, Any]], *, title: str) -> Figure:
    """Median speed of every arm in the results of `compare_arms`, with the range of the rounds."""
    bars = [(case["case"], arm, ratio) for case in cases for arm, ratio in case["ratios"].items()]
    figure, axes = _chart(title, height=1.5 + 0.5 * (len(bars) + 1), left=0.36)
    labels = ["baseline: the paper as written", *(f"{name}: {arm}" for name, arm, _ in bars)]
    values = [1.0, *(ratio.median for *_, ratio in bars)]
    colours = [COLOURS[-1], *(COLOURS[0] for _ in bars)]
    axes.barh(range(len(values)), values, color=colours, height=0.62)
    longest = max([1.0, *(ratio.max for *_, ratio in bars)])
    for place, (*_, ratio) in enumerate(bars, start=1):
        axes.plot([ratio.min, ratio.max], [place, place], color=INK, lw=1.4)
        end = ratio.max + 0.015 * longest
        axes.text(end, place, f"{ratio.median:.2f}×", va="center", color=INK, size=10)
    axes.set_xlim(0, longest * 1.15)
    axes.set_xlabel("times as fast (median of rounds; the line spans all rounds)", color=MUTED)
    _name_bars(axes, labels)
    return figure


def grouped_bars(values: Mapping[str, Mapping[str, float]], *, title: str, unit: str) -> Figure:
    """A group of bars for each name, with one bar for each kind, and a legend of the kinds."""
    kinds = list(next(iter(values.values())))
    step = 0.8 / len(kinds)
    figure, axes = _chart(title, height=1.7 + 0.75 * len(values), left=0.2)
    longest = max(value for group in values.values() for value in group.values())
    for number, kind in enumerate(kinds):
        places = [place + (number - (len(kinds) - 1) / 2) * step for place in range(len(values))]
        lengths = [group[kind] for group in values.values()]
        axes.barh(places, lengths, height=0.9 * step, color=COLOURS[number], label=kind)
        for place, length in zip(places, lengths, strict=True):
            text = f"{length:,.0f}" if longest >= 100 else f"{length:.3g}"
            axes.text(length + 0.01 * longest, place, text, va="center", size=8, color=INK)
    axes.set_xlim(0, longest * 1.14)
    axes.set_xlabel(unit, color=MUTED, loc="left")
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}" if longest >= 100 else "{x:g}"))
    _name_bars(axes, list(values))
    # Below the axes, beside the unit, where it covers no bar.
    axes.legend(
        frameon=False,
        fontsize=9,
        labelcolor=INK,
        loc="upper right",
        bbox_to_anchor=(1.0, -0.3 / figure.get_figheight()),
        ncols=len(kinds),
    )
    return figure


def memory_lines(
    peaks: Mapping[str, Mapping[int, float]], *, title: str, stopped: Mapping[str, str]
) -> Figure:
    """Gigabytes against the side of the image in pixels, per arm; notes why arms were stopped."""
    figure, axes = _chart(title, height=5.2, left=0.1, right=0.78)
    highest = max((peak for line in peaks.values() for peak in line.values()), default=1.0)
    widest = max((side for line in peaks.values() for side in line), default=1)
    ends = []
    for number, (arm, line) in enumerate(peaks.items()):
        if line:
            colour = COLOURS[number % len(COLOURS)]
            sides, values = list(line), list(line.values())
            axes.plot(sides, values, color=colour, lw=2, marker="o", ms=5)
            ends.append((values[-1], sides[-1], arm, colour))
    height = -1.0
    for value, side, arm, colour in sorted(ends):
        # Labels of lines with the same end are moved apart.
        height = value if side < widest else max(value, height + 0.055 * highest)
        text = f"{arm}, {value:.2f} GB"
        at = (side + 0.02 * widest, value if side < widest else height)
        axes.annotate(text, at, color=colour, size=10, va="center", annotation_clip=False)
    axes.set_ylim(0, 1.1 * highest)
    axes.set_xlim(0, 1.02 * widest)
    axes.set_xlabel("side of the image, px", color=MUTED)
    axes.set_ylabel("peak memory of the process, GB", color=MUTED)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
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


def _chart(title: str, *, height: float, left: float, right: float = 0.97) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(_WIDTH, height), dpi=150, facecolor="white")
    box = (left * _WIDTH, 0.75, (right - left) * _WIDTH, height - 1.35)
    return figure, add_axes(figure, box, title=title)


def _name_bars(axes: Axes, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), labels, size=10, color=INK)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
