"""The page that pictures are put on, and the colours they share."""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import AutoLocator, MaxNLocator

Colour = tuple[float, float, float]

DPI = 150

INK, MUTED, RULE = "#1f2933", "#6b7280", "#d5d9de"
#: Ten colours that stay at least 20 CIELAB units apart with red or green blindness, none of them
#: too dark for a black image or too light for a white one.
PALETTE = (
    "#0072b2",
    "#ffa90e",
    "#bd1f01",
    "#33bbee",
    "#7b68ee",
    "#ee7733",
    "#b2df8a",
    "#ffaabb",
    "#a96b59",
    "#717581",
)


class Page:
    """A figure on which things are put by inches from the top left.

    Frames go to whole pixels: between two, their sides would differ in width.
    """

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = _snapped(width), _snapped(height)
        self.figure = Figure(figsize=(self.width, self.height), dpi=DPI, facecolor="white")

    def axes(self, x: float, y: float, w: float, h: float) -> Axes:
        """A bare frame with its origin at the top left."""
        x, y, w, h = map(_snapped, (x, y, w, h))
        place = x / self.width, 1 - (y + h) / self.height, w / self.width, h / self.height
        axes = self.figure.add_axes(place, xticks=[], yticks=[])
        axes.spines[:].set(color=RULE, linewidth=0.8)
        return axes

    def write(self, x: float, y: float, text: str, **style: Any) -> None:
        """Plain text (a dollar sign is one), its top left corner at x, y unless told otherwise."""
        usual: dict[str, Any] = {"va": "top", "color": INK, "parse_math": False}
        self.figure.text(x / self.width, 1 - y / self.height, text, **(usual | style))

    def save(self, path: Path) -> None:
        """Write a PNG that appears whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        self.figure.savefig(partial, format="png", dpi="figure")
        partial.replace(path)


def _snapped(inches: float) -> float:
    return round(inches * DPI) / DPI


def shortened(text: str, letters: int) -> str:
    """``text``, its end cut off if it is longer than ``letters``."""
    return text if len(text) <= letters else text[: letters - 1] + "…"


def wrapped(text: str, letters: int) -> str:
    """``text`` in lines of at most ``letters``; its own line breaks stay."""
    return "\n".join("\n".join(wrap(line, letters)) for line in text.split("\n"))


def chip(colour: Colour) -> dict[str, Any]:
    """A number on a ground of ``colour``, dark or white, whichever can be read on it."""
    bright = float(np.dot(colour, (0.299, 0.587, 0.114))) > 0.55
    ground = {"boxstyle": "round,pad=0.18,rounding_size=0.25", "facecolor": colour, "lw": 0}
    return {"size": 7, "weight": "bold", "color": INK if bright else "white", "bbox": ground}


def over_epochs(axes: Axes, title: str, epochs: npt.NDArray[np.float64]) -> None:
    """Make ready for a curve over ascending ``epochs``."""
    axes.set_title(title, loc="left", size=11, weight="bold", color=INK, pad=10)
    axes.set_xlabel("epoch", size=9, color=MUTED)
    around = 0.5 if len(epochs) == 1 else 0.0
    axes.set_xlim(float(epochs[0]) - around, float(epochs[-1]) + around)
    axes.xaxis.set_major_locator(
        MaxNLocator(integer=True, nbins=8, steps=[1, 2, 5, 10], min_n_ticks=1)
    )
    axes.yaxis.set_major_locator(AutoLocator())
    axes.grid(axis="y", color=RULE, lw=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=9, colors=MUTED, length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(RULE)
