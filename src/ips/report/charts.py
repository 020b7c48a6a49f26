"""The charts of a report, as SVG that takes its colours from the page's style.

Lengths are in the units of a chart, about a pixel each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, log10

import numpy as np

from ips.report.html import Html, el
from ips.report.statistics import Calibration, Floats, Interval

_LEFT, _RIGHT, _TOP, _BOTTOM = 42, 12, 10, 38
_SQUARE = 250  # side of the plot of a chart whose axes are alike
_POINTS = 400  # of a line; more would not be seen
COLOURS = 8  # lines that can be told apart: the style has a class for each


@dataclass(frozen=True)
class Line:
    """A curve, and what it is called."""

    name: str
    x: Floats
    y: Floats


@dataclass(frozen=True)
class _Frame:
    """Where the values of two axes lie in a plot of ``width`` by ``height``."""

    width: float
    height: float
    x: tuple[float, float]
    y: tuple[float, float]

    def across(self, value: float) -> float:
        low, high = self.x
        return _LEFT + self.width * (value - low) / (high - low)

    def down(self, value: float) -> float:
        low, high = self.y
        return _TOP + self.height * (1 - (value - low) / (high - low))

    def axes(
        self, x_ticks: Sequence[float], y_ticks: Sequence[float], x_name: str, y_name: str
    ) -> list[Html]:
        """Rules across, numbers along both axes, and the names of the axes."""
        parts = []
        right, bottom = _LEFT + self.width, _TOP + self.height
        for value, word in zip(y_ticks, _words(y_ticks), strict=True):
            y = self.down(value)
            parts.append(el("line", x1=_LEFT, x2=right, y1=y, y2=y, class_="rule"))
            parts.append(_text(_LEFT - 6, y + 4, word, anchor="end"))
        for value, word in zip(x_ticks, _words(x_ticks), strict=True):
            parts.append(_text(self.across(value), bottom + 16, word, anchor="middle"))
        parts.append(_text(_LEFT + self.width / 2, bottom + 33, x_name, anchor="middle"))
        if y_name:
            middle = _TOP + self.height / 2
            turned = f"rotate(-90 12 {middle:.5g})"
            parts.append(_text(12, middle, y_name, anchor="middle", turned=turned))
        return parts

    def path(self, x: Floats, y: Floats, class_: str) -> Html:
        """A line through those points that there are, thinned where there are very many."""
        there = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
        if len(there) > _POINTS:
            there = there[np.linspace(0, len(there) - 1, _POINTS).round().astype(np.int64)]
        spots = [f"{self.across(x[i]):.1f},{self.down(y[i]):.1f}" for i in there]
        if len(spots) == 1:  # a line through a single point would not be seen
            a, b = spots[0].split(",")
            return el("circle", cx=a, cy=b, r=4, class_=class_ + " dot")
        return el("polyline", points=" ".join(spots), class_=class_)

    def chart(self, parts: Sequence[Html], label: str) -> Html:
        width, height = self.width + _LEFT + _RIGHT, self.height + _TOP + _BOTTOM
        box = f"0 0 {width:.5g} {height:.5g}"
        return el("svg", *parts, view_box=box, role="img", aria_label=label, class_="chart")


def _text(x: float, y: float, word: str, *, anchor: str, turned: str | None = None) -> Html:
    return el("text", word, x=float(x), y=float(y), text_anchor=anchor, transform=turned)


def ticks(low: float, high: float, *, count: int = 5, whole: bool = False) -> list[float]:
    """Round numbers from ``low`` to ``high``, about ``count`` of them.

    >>> ticks(0, 1), ticks(1, 40, whole=True)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [10.0, 20.0, 30.0, 40.0])
    """
    raw = max(high - low, 1e-12) / count
    power = 10.0 ** floor(log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.999)
    step = max(step, 1.0) if whole else step
    first, last = ceil(low / step - 1e-6), floor(high / step + 1e-6)
    return [round(number * step, 12) for number in range(first, last + 1)]


def _words(values: Sequence[float]) -> list[str]:
    """Numbers with as many decimals as their step asks for."""
    step = min((b - a for a, b in pairwise(values)), default=1.0)
    decimals = max(0, -floor(log10(step) + 1e-9))
    return [f"{value:,.{decimals}f}" for value in values]


def curves(lines: Sequence[Line], *, name: str, unit: bool = False) -> Html:
    """Lines over epochs; with ``unit`` from 0 to 1, else from their lowest to their highest."""
    x = lines[0].x
    known = np.concatenate([line.y[np.isfinite(line.y)] for line in lines])
    low, high = (float(known.min()), float(known.max())) if len(known) and not unit else (0.0, 1.0)
    room = 0.0 if unit else 0.06 * (high - low) or 0.5
    low, high = low - room, high + room
    marks = ticks(low, high)
    around = 0.5 if len(x) == 1 else 0.0
    frame = _Frame(366, 190, (float(x[0]) - around, float(x[-1]) + around), (low, high))
    epochs = ticks(float(x[0]), float(x[-1]), count=6, whole=True)
    if float(x[0]) not in epochs and (not epochs or epochs[0] > x[0] + (x[-1] - x[0]) / 16):
        epochs.insert(0, float(x[0]))
    parts = frame.axes(epochs, marks, "epoch", "")
    parts += [frame.path(k.x, k.y, f"line c{i % COLOURS}") for i, k in enumerate(lines)]
    ends = [f"{k.name} {k.y[-1]:.3g}" for k in lines]
    return frame.chart(
        parts, f"{name}, epoch {x[0]:.0f} to {x[-1]:.0f}, ends at: {', '.join(ends)}"
    )


def roc_chart(false: Floats, true: Floats, area: Interval) -> Html:
    """The ROC curve over the diagonal of guessing."""
    frame = _Frame(_SQUARE, _SQUARE, (0, 1), (0, 1))
    marks = ticks(0, 1)
    parts = frame.axes(marks, marks, "false positive rate", "true positive rate")
    ends = np.array([0.0, 1.0])
    parts.append(frame.path(ends, ends, "guide"))
    parts.append(frame.path(false, true, "line c0"))
    return frame.chart(parts, f"ROC curve, area {area.value:.3f}")


def reliability_chart(calibration: Calibration, *, said: str, true: str) -> Html:
    """What came true over what was said: dots by how many, on the diagonal if calibrated."""
    frame = _Frame(_SQUARE, _SQUARE, (0, 1), (0, 1))
    marks = ticks(0, 1)
    parts = frame.axes(marks, marks, said, true)
    ends = np.array([0.0, 1.0])
    parts.append(frame.path(ends, ends, "guide"))
    total = sum(b.count for b in calibration.bins)
    for b in calibration.bins:
        x = frame.across(b.said)
        parts.append(
            el("line", x1=x, x2=x, y1=frame.down(b.said), y2=frame.down(b.true), class_="off")
        )
    for b in calibration.bins:
        radius = 3 + 12 * (b.count / total) ** 0.5
        note = el("title", f"{b.count:,} answers: {b.said:.2f} said, {b.true:.2f} true")
        x, y = frame.across(b.said), frame.down(b.true)
        parts.append(el("circle", note, cx=x, cy=y, r=radius, class_="bubble"))
    return frame.chart(parts, f"Reliability diagram, calibration error {calibration.error:.3f}")


def interval_bar(interval: Interval) -> Html:
    """A score from 0 to 1 and its interval, small enough for a table."""
    if not interval.known:
        return Html("")
    x = [8 + 144 * value for value in (interval.low, interval.value, interval.high)]
    parts = [
        el("line", x1=8, x2=152, y1=10, y2=10, class_="track"),
        el("line", x1=x[0], x2=x[2], y1=10, y2=10, class_="range"),
        el("circle", cx=x[1], cy=10, r=4.5, class_="bubble-full"),
    ]
    return el("svg", *parts, view_box="0 0 160 20", aria_hidden="true", class_="interval")
