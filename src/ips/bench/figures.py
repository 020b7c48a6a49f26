"""The pictures of the benchmarks: bars of speed, lines of memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

_INK, _MUTED, _RULE = "#1f2933", "#6b7280", "#d5d9de"
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#7b68ee", "#717581")


def ratio_bars(cases: Sequence[Mapping[str, Any]], *, title: str) -> Figure:
    """A bar per arm and case, as long as it is fast; a line from the slowest to the fastest round.

    Args:
        cases: each with ``case`` and ``ratios``, which maps arms to ``Ratio``.
        title: of the picture.
    """
    bars = [(case["case"], arm, ratio) for case in cases for arm, ratio in case["ratios"].items()]
    figure, axes = _figure(title, height=1.5 + 0.5 * (len(bars) + 1), left=0.36)
    labels = ["the paper as written", *(f"{name}: {arm}" for name, arm, _ in bars)]
    values = [1.0, *(ratio.median for *_, ratio in bars)]
    colours = [_COLOURS[-1], *(_COLOURS[0] for _ in bars)]
    axes.barh(range(len(values)), values, color=colours, height=0.62)
    reach = max([1.0, *(ratio.max for *_, ratio in bars)])
    for place, (*_, ratio) in enumerate(bars, start=1):
        axes.plot([ratio.min, ratio.max], [place, place], color=_INK, lw=1.4)
        end = ratio.max + 0.015 * reach
        axes.text(end, place, f"{ratio.median:.2f}×", va="center", color=_INK, size=10)
    axes.set_yticks(range(len(labels)), labels, size=10, color=_INK)
    axes.invert_yaxis()
    axes.set_xlim(0, reach * 1.15)
    axes.set_xlabel("times as fast (median of rounds; the line spans all rounds)", color=_MUTED)
    axes.grid(axis="x", color=_RULE, lw=0.7)
    return figure


def grouped_bars(values: Mapping[str, Mapping[str, float]], *, title: str, unit: str) -> Figure:
    """For each name a group of bars, one for each kind, with a legend of the kinds."""
    kinds = list(next(iter(values.values())))
    step = 0.8 / len(kinds)
    figure, axes = _figure(title, height=1.7 + 0.75 * len(values), left=0.2)
    longest = max(value for group in values.values() for value in group.values())
    for number, kind in enumerate(kinds):
        places = [place + (number - (len(kinds) - 1) / 2) * step for place in range(len(values))]
        lengths = [group[kind] for group in values.values()]
        axes.barh(places, lengths, height=0.9 * step, color=_COLOURS[number], label=kind)
        for place, length in zip(places, lengths, strict=True):
            text = f"{length:,.0f}" if longest >= 100 else f"{length:.3g}"
            axes.text(length + 0.01 * longest, place, text, va="center", size=8, color=_INK)
    axes.set_yticks(range(len(values)), list(values), size=10, color=_INK)
    axes.invert_yaxis()
    axes.set_xlim(0, longest * 1.14)
    axes.set_xlabel(unit, color=_MUTED, loc="left")
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}" if longest >= 100 else "{x:g}"))
    axes.grid(axis="x", color=_RULE, lw=0.7)
    # Below the axes, beside the unit: a bar may reach anywhere in them.
    below = (1.0, -0.3 / figure.get_figheight())
    axes.legend(
        frameon=False,
        fontsize=9,
        labelcolor=_INK,
        loc="upper right",
        bbox_to_anchor=below,
        ncols=len(kinds),
    )
    return figure


def memory_lines(
    peaks: Mapping[str, Mapping[int, float]], *, title: str, stopped: Mapping[str, str]
) -> Figure:
    """Peak memory against the side of the image, a line per arm, its name at its end.

    Args:
        peaks: per arm, side in pixels to gigabytes.
        title: of the picture.
        stopped: per arm that was not run to the end, why.
    """
    figure, axes = _figure(title, height=5.2, left=0.1, right=0.78)
    highest = max((peak for line in peaks.values() for peak in line.values()), default=1.0)
    widest = max((side for line in peaks.values() for side in line), default=1)
    ends = []
    for number, (arm, line) in enumerate(peaks.items()):
        if line:
            colour = _COLOURS[number % len(_COLOURS)]
            sides, values = list(line), list(line.values())
            axes.plot(sides, values, color=colour, lw=2, marker="o", ms=5)
            ends.append((values[-1], sides[-1], arm, colour))
    height = -1.0
    for value, side, arm, colour in sorted(ends):
        # Names of lines that end together are moved apart.
        height = value if side < widest else max(value, height + 0.055 * highest)
        text = f"{arm}, {value:.2f} GB"
        at = (side + 0.02 * widest, value if side < widest else height)
        axes.annotate(text, at, color=colour, size=10, va="center", annotation_clip=False)
    axes.set_ylim(0, 1.1 * highest)
    axes.set_xlim(0, 1.02 * widest)
    axes.set_xlabel("side of the image, px", color=_MUTED)
    axes.set_ylabel("peak memory of the process, GB", color=_MUTED)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.grid(color=_RULE, lw=0.7)
    for number, text in enumerate(stopped.values()):
        figure.text(0.1, 0.015 + 0.035 * number, text, size=8.5, color=_MUTED)
    return figure


def _figure(title: str, *, height: float, left: float, right: float = 0.97) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(9.5, height), dpi=150, facecolor="white")
    bottom, top = 0.75 / height, 1 - 0.6 / height
    axes = figure.add_axes((left, bottom, right - left, top - bottom))
    axes.set_title(title, loc="left", size=12, weight="bold", color=_INK, pad=12)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=9, colors=_MUTED, length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(_RULE)
    return figure, axes
