"""The attention of every patch as a colour over the image, with a bar that says how much it is.

Letters: N patches of an image. Lengths on the page are in inches.
"""

from __future__ import annotations

import io
from math import ceil
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.axes import Axes

from ips.explain.maps import (
    Attention,
    AttentionMap,
    attention_map,
    mean_attention,
    percentiles,
    raw_at,
)
from ips.explain.marks import THUMBNAIL_SIDE
from ips.explain.page import MUTED, RULE, Page, wrapped
from ips.patches import PatchSource
from ips.patches.thumbnail import Thumbnail

_VIEW = 4.4, 4.4  # width and height that a map fits into
_NARROWEST = 2.8  # of a bar with numbers below it
_MARGIN, _GAP, _LINE = 0.3, 0.4, 0.2
_OPACITY = 0.65
_MAP = colormaps["viridis"]
_CELLS = 2**20  # more could not be seen
_SHARES = [0.0, 0.25, 0.5, 0.75, 1.0]


def draw_overlay(path: Path, source: PatchSource, attention: Attention, *, title: str) -> None:
    """One PNG of the whole image: the mean over tasks, and each task beside it.

    Colour and opacity say which share of the image got less attention, since the attention itself
    is nearly 0 almost everywhere; the numbers below the bar are the attention.

    Args:
        path: of the PNG.
        source: the patches of the image.
        attention: ``(N,)`` of each of them, per task.
        title: what to write above.
    """
    _page(source, attention, title).save(path)


def overlay_png(source: PatchSource, attention: Attention, *, title: str) -> bytes:
    """The same as the bytes of a PNG."""
    buffer = io.BytesIO()
    _page(source, attention, title).figure.savefig(buffer, format="png", dpi="figure")
    return buffer.getvalue()


def tinted(attention: AttentionMap) -> npt.NDArray[np.uint8]:
    """``(rows, columns, 4)`` RGBA: the colour of each cell, the more opaque the higher it ranks."""
    scaled = percentiles(attention.values)
    colours: npt.NDArray[np.uint8] = _MAP(scaled, bytes=True)
    colours[..., 3] = np.rint(255 * _OPACITY * scaled)
    return colours


def _page(source: PatchSource, attention: Attention, title: str) -> Page:
    view = source.parts[0].thumbnail(THUMBNAIL_SIDE)
    panels = {"attention": mean_attention(attention)}
    if len(attention) > 1:
        panels = {"mean of the tasks": panels["attention"], **attention}
    width, height = _fitted(view)
    cell, columns = max(width, _NARROWEST), min(3, len(panels))
    across = max(columns * (cell + _GAP) - _GAP, 4.4)
    header, note = wrapped(title, int(across * 12.5)), wrapped(_NOTE, int(across * 16))
    top = 0.35 + _LINE * (header.count("\n") + 1)
    pitch = 0.25 + height + 0.65
    below = top + ceil(len(panels) / columns) * pitch
    page = Page(across + 2 * _MARGIN, below + 0.2 + 0.17 * (note.count("\n") + 1))
    page.write(_MARGIN, 0.2, header, size=10, weight="bold", linespacing=1.3)
    for i, (name, values) in enumerate(panels.items()):
        x, y = _MARGIN + i % columns * (cell + _GAP), top + i // columns * pitch
        page.write(x, y, name, size=9)
        of = attention_map(source, values, most=_CELLS)
        _draw_map(page.axes(x, y + 0.25, width, height), view, of)
        _draw_bar(page.axes(x, y + 0.35 + height, cell, 0.11), of)
    page.write(_MARGIN, below, note, size=8, color=MUTED, linespacing=1.35)
    return page


_NOTE = (
    "Colour and opacity: the share of the places with any attention that got less of it. Numbers: "
    "the attention of a patch in per cent of all, a mean where patches overlap."
)


def _draw_map(axes: Axes, view: Thumbnail, attention: AttentionMap) -> None:
    h, w = view.pixels.shape[:2]
    axes.imshow(view.pixels, extent=(0, w, h, 0), interpolation="antialiased")
    rows, columns = attention.values.shape
    left, top = ((a - b) * view.scale for a, b in zip(attention.offset, view.offset, strict=True))
    side = attention.cell * view.scale
    extent = left, left + columns * side, top + rows * side, top
    axes.imshow(tinted(attention), extent=extent, interpolation="nearest")
    axes.set(xlim=(0, w), ylim=(h, 0), aspect="auto")


def _draw_bar(axes: Axes, attention: AttentionMap) -> None:
    axes.imshow(np.linspace(0, 1, 256)[None], cmap=_MAP, aspect="auto", extent=(0, 1, 0, 1))
    raw = raw_at(attention.values, _SHARES)
    axes.set_xticks(_SHARES, [f"{100 * value:.3g} %" for value in raw])
    axes.tick_params(length=2, labelsize=7.5, labelcolor=MUTED, color=RULE, pad=2)
    first, *_, last = axes.get_xticklabels()
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")


def _fitted(view: Thumbnail) -> tuple[float, float]:
    """Width and height of a thumbnail on the page."""
    height, width = view.pixels.shape[:2]
    inch = max(width / _VIEW[0], height / _VIEW[1])
    return width / inch, height / inch
