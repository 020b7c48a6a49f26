"""The charts of a report: values and axes, which ``templates/macros.html.j2`` draws as SVG.

Lengths are in units of a chart, about one pixel each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import floor, log10

import numpy as np
from matplotlib.ticker import MaxNLocator

from ips.localisation import RATES, Localisation
from ips.statistics import Bin, Floats

COLOURS = 8
"""Number of line colours in the style sheet."""

_POINTS = 400  # a line with more points would look the same


@dataclass(frozen=True)
class Line:
    """A curve: its points, the style class to draw it with, and its name in the legend."""

    style: str
    x: Floats
    y: Floats
    name: str = ""


#: Where predicted probabilities are right, and where a random classifier is.
DIAGONAL = Line("guide", np.array([0.0, 1.0]), np.array([0.0, 1.0]))


@dataclass(frozen=True)
class Chart:
    """Lines, dots, or dots for bins, over two axes; ``label`` is for screen readers.

    ``x_texts`` are the texts of the ticks of the x-axis, if they are not their numbers. ``dots``
    are x and y of each.
    """

    label: str
    x_name: str
    y_name: str
    lines: Sequence[Line]
    bins: Sequence[Bin] = ()
    dots: Sequence[tuple[float, float]] = ()
    x_ticks: Sequence[float] = (0, 0.2, 0.4, 0.6, 0.8, 1)
    x_texts: Sequence[str] = ()
    y_ticks: Sequence[float] = (0, 0.2, 0.4, 0.6, 0.8, 1)
    x_range: tuple[float, float] = (0.0, 1.0)
    y_range: tuple[float, float] = (0.0, 1.0)
    width: float = 250
    height: float = 250

    def x(self, value: float) -> float:
        """Distance of a value from the left side of the plot."""
        low, high = self.x_range
        return self.width * (value - low) / (high - low)

    def y(self, value: float) -> float:
        """Distance of a value from the top of the plot."""
        low, high = self.y_range
        return self.height * (1 - (value - low) / (high - low))

    def points(self, line: Line) -> list[str]:
        """The finite points of a line as ``x,y``, thinned out where there are very many."""
        finite = np.flatnonzero(np.isfinite(line.x) & np.isfinite(line.y))
        if len(finite) > _POINTS:
            finite = finite[np.linspace(0, len(finite) - 1, _POINTS).round().astype(np.int64)]
        return [f"{self.x(line.x[i]):.1f},{self.y(line.y[i]):.1f}" for i in finite]


@dataclass(frozen=True)
class Figure:
    """A chart with a title and a note; a note alone explains why there is no chart."""

    title: str
    chart: Chart | None
    note: str


def ticks(low: float, high: float, *, count: int = 5, whole: bool = False) -> list[float]:
    """About ``count`` round numbers from ``low`` to ``high``.

    >>> ticks(0, 1), ticks(1, 40, whole=True)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [10.0, 20.0, 30.0, 40.0])
    """
    locator = MaxNLocator(count, steps=[1, 2, 5, 10], integer=whole, min_n_ticks=1)
    values = [round(float(value), 12) for value in locator.tick_values(low, high)]
    return [value for value in values if low - 1e-9 <= value <= high + 1e-9]


def tick_texts(values: Sequence[float]) -> list[str]:
    """Numbers with as many decimals as the distance between them requires.

    >>> tick_texts([0, 0.25, 0.5])
    ['0.0', '0.2', '0.5']
    """
    step = min((b - a for a, b in pairwise(values)), default=1.0)
    decimals = max(0, -floor(log10(step) + 1e-9))
    return [f"{value:,.{decimals}f}" for value in values]


def froc_chart(results: Mapping[str, Localisation]) -> Chart:
    """The share of objects found against false positives per image, a line for every task."""
    x = np.log2(RATES)
    lines = [
        Line(f"line c{i % COLOURS}", x, np.array(result.sensitivity), task)
        for i, (task, result) in enumerate(results.items())
    ]
    means = [f"{task} {result.measures['froc'].value:.3f}" for task, result in results.items()]
    return Chart(
        label=f"Objects found against false positives per image, mean: {', '.join(means)}",
        x_name="false positives per image",
        y_name="fraction of objects found",
        lines=lines,
        x_ticks=x.tolist(),
        x_texts=[f"{rate:g}" for rate in RATES],
        x_range=(float(x[0]), float(x[-1])),
    )


def epoch_chart(epochs: Floats, curves: dict[str, Floats], *, name: str, unit: bool) -> Chart:
    """Curves over epochs; with ``unit`` the y-axis goes from 0 to 1, else over their range."""
    first, last = float(epochs[0]), float(epochs[-1])
    known = np.concatenate([values[np.isfinite(values)] for values in curves.values()])
    low, high = (float(known.min()), float(known.max())) if len(known) and not unit else (0.0, 1.0)
    margin = 0.0 if unit else 0.06 * (high - low) or 0.5
    low, high = low - margin, high + margin
    around = 0.5 if len(epochs) == 1 else 0.0
    x_ticks = ticks(first, last, count=6, whole=True)
    if first not in x_ticks and (not x_ticks or x_ticks[0] > first + (last - first) / 16):
        x_ticks.insert(0, first)
    ends = ", ".join(f"{curve} {values[-1]:.3g}" for curve, values in curves.items())
    return Chart(
        label=f"{name}, epoch {first:.0f} to {last:.0f}, final values: {ends}",
        x_name="epoch",
        y_name="",
        x_ticks=x_ticks,
        y_ticks=ticks(low, high),
        lines=[
            Line(f"line c{i % COLOURS}", epochs, values, curve)
            for i, (curve, values) in enumerate(curves.items())
        ],
        x_range=(first - around, last + around),
        y_range=(low, high),
        width=366,
        height=190,
    )
