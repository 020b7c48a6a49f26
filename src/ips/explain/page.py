"""The page that pictures are put on, and the colours they share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

Colour = tuple[float, float, float]

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
    """A figure on which things are put by inches from the top left."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self.figure = Figure(figsize=(width, height), dpi=150, facecolor="white")

    def axes(self, x: float, y: float, w: float, h: float) -> Axes:
        """A bare frame with its origin at the top left."""
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


def shortened(text: str, letters: int) -> str:
    """``text``, its end cut off if it is longer than ``letters``."""
    return text if len(text) <= letters else text[: letters - 1] + "…"
