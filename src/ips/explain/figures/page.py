"""The page of a figure: axes and text placed in inches from the top-left corner."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import AutoLocator, MaxNLocator

from ips.explain.colours import INK, MUTED, RULE, Colour, ink_on
from ips.files import atomic_write

DPI = 150
MARGIN = 0.3


@dataclass(frozen=True)
class TextBlock:
    """Wrapped text with its style, and its height in inches."""

    text: str
    height: float
    style: dict[str, Any]


def title_block(text: str, width: float) -> TextBlock:
    """A title, wrapped to ``width`` inches."""
    return _block(text, int(width * 12.5), 0.2, size=10, weight="bold", linespacing=1.3)


def note_block(text: str, width: float) -> TextBlock:
    """A note in small print, wrapped to ``width`` inches."""
    return _block(text, int(width * 16), 0.17, size=8, color=MUTED, linespacing=1.35)


def _block(text: str, length: int, line_height: float, **style: Any) -> TextBlock:
    lines = [part for line in text.split("\n") for part in wrap(line, length) or [""]]
    return TextBlock("\n".join(lines), line_height * len(lines), style)


class Page:
    """A figure of ``width`` by ``height`` inches.

    Frames are moved to whole pixels: otherwise the widths of their lines would differ.
    """

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = _snapped(width), _snapped(height)
        self.figure = Figure(figsize=(self.width, self.height), dpi=DPI, facecolor="white")

    def axes(self, x: float, y: float, w: float, h: float) -> Axes:
        """Axes without ticks, with their top-left corner at x, y."""
        x, y, w, h = map(_snapped, (x, y, w, h))
        place = x / self.width, 1 - (y + h) / self.height, w / self.width, h / self.height
        axes = self.figure.add_axes(place, xticks=[], yticks=[])
        axes.spines[:].set(color=RULE, linewidth=0.8)
        return axes

    def frame(
        self, x: float, y: float, w: float, h: float, *, colour: Any = RULE, line: float = 0.8
    ) -> None:
        """A rectangle with its top-left corner at x, y."""
        x, y, w, h = map(_snapped, (x, y, w, h))
        corner = x / self.width, 1 - (y + h) / self.height
        box = Rectangle(corner, w / self.width, h / self.height, fill=False, lw=line, ec=colour)
        self.figure.add_artist(box)

    def picture(self, x: float, y: float, pixels: npt.NDArray[np.uint8]) -> None:
        """Pixels ``(h, w, 3)`` of the figure; axes would take many times as long to draw."""
        left, below = round(x * DPI), round((self.height - _snapped(y)) * DPI) - len(pixels)
        self.figure.figimage(pixels, left, below, origin="upper")

    def write(self, x: float, y: float, text: str | TextBlock, **style: Any) -> None:
        """Write plain text with its top-left corner at x, y; a dollar sign has no meaning."""
        if isinstance(text, TextBlock):
            style, text = text.style | style, text.text
        usual: dict[str, Any] = {"va": "top", "color": INK, "parse_math": False}
        self.figure.text(x / self.width, 1 - y / self.height, text, **(usual | style))

    def png(self) -> bytes:
        buffer = io.BytesIO()
        self.figure.savefig(buffer, format="png", dpi="figure")
        return buffer.getvalue()

    def save(self, path: Path) -> None:
        """Write a PNG, atomically."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as stream:
            stream.write(self.png())


def _snapped(inches: float) -> float:
    return round(inches * DPI) / DPI


def chip(colour: Colour) -> dict[str, Any]:
    """Text style of a number on a background of ``colour``."""
    background = {"boxstyle": "round,pad=0.18,rounding_size=0.25", "facecolor": colour, "lw": 0}
    return {"size": 7, "weight": "bold", "color": ink_on(colour), "bbox": background}


def style_epoch_axes(axes: Axes, title: str, epochs: npt.NDArray[np.float64]) -> None:
    """Prepare axes for curves over ascending ``epochs``."""
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
