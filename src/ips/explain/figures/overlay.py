"""Figure: the attention of all patches as colours over the image, one panel per task.

Lengths on the page are in inches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from ips.annotations import Outline
from ips.explain.colours import MUTED, RULE, shortened
from ips.explain.explanation import Explanation
from ips.explain.figures.drawing import (
    COLOUR_MAP,
    draw_colours,
    draw_crop,
    draw_outlines,
    draw_thumbnail,
    fit,
)
from ips.explain.figures.page import MARGIN, Page, note_block, title_block
from ips.explain.maps import (
    AttentionMap,
    Floats,
    all_values,
    attention_map,
    percentiles,
    values_at,
)
from ips.explain.marks import THUMBNAIL_SIDE
from ips.explain.spread import spread
from ips.patches import Thumbnail, has_pixels, read_crops

_VIEW = 4.4, 4.4  # width and height of the box that a map fits into
_MIN_BAR_WIDTH = 2.8  # leaves room for the numbers below a colour bar
_GAP = 0.4
_CROP, _CROP_GAP = 0.82, 0.08  # about the side of a crop, and the distance of crops
_NAMES = 0.4  # height of the name of a map and the line below it
_OPACITY = 0.65
_MOST = 12  # parts of a bag that are drawn
_MAX_CELLS = 2**20  # finer maps would look the same
_TICKS = [0.0, 0.25, 0.5, 0.75, 1.0]  # ranks with a number below the colour bar
_NOTE = (
    "Colour and opacity: rank of the attention among all places with any attention. Numbers: "
    "attention of a patch in per cent of the total, the mean where patches overlap. Even share: "
    "what every patch would have if all had the same. Below: the patches with the most attention."
)


def overlay_page(explanation: Explanation) -> Page:
    """The whole image with the mean attention over tasks, and with the attention of each task.

    Below are the patches with the most attention (Figures 5 and 10 of the paper). Annotations are
    drawn as contours.

    Colour and opacity show the rank of the attention, since the attention itself is close to 0
    for most patches. The numbers below the colour bar are attention values. A bag of several images
    or magnifications has a panel for each, those with the most attention first, and attention is
    ranked among all of them.
    """
    panels = _panels(explanation)
    sizes = [fit(panel.view, *_VIEW) for panel in panels]
    width, height = (max(side) for side in zip(*sizes, strict=True))
    panel_width, columns = max(width, _MIN_BAR_WIDTH), min(3, len(panels))
    inner = max(columns * (panel_width + _GAP) - _GAP, 4.4)
    text, parts = explanation.title, len(explanation.source.parts)
    if parts > _MOST:
        text += f"\nThe {_MOST} of {parts} images with the most attention"
    title, note = title_block(text, inner), note_block(_NOTE, inner)
    top, row_height = 0.35 + title.height, _NAMES + height + 0.65
    below = top + ceil(len(panels) / columns) * row_height
    count = round((inner + _CROP_GAP) / (_CROP + _CROP_GAP))
    side = (inner + _CROP_GAP) / count - _CROP_GAP  # so that they fill the width
    crops = _crops(explanation, count)
    bottom = below + (side + 0.3 if len(crops) else 0)
    page = Page(inner + 2 * MARGIN, bottom + 0.2 + note.height)
    page.write(MARGIN, 0.2, title)
    for i, (panel, size) in enumerate(zip(panels, sizes, strict=True)):
        x, y = MARGIN + i % columns * (panel_width + _GAP), top + i // columns * row_height
        page.write(x, y, shortened(panel.name, int(panel_width / 0.07)), size=9)
        page.write(x, y + 0.18, panel.text, size=7.5, color=MUTED)
        axes = page.axes(x, y + _NAMES, *size)
        _draw_map(axes, panel)
        draw_outlines(axes, panel.view, panel.outlines)
        _draw_bar(page.axes(x, y + _NAMES + 0.1 + height, panel_width, 0.11), panel.among)
    for i, crop in enumerate(crops):
        draw_crop(page, MARGIN + i * (side + _CROP_GAP), below, side=side, patch=crop)
    page.write(MARGIN, bottom, note)
    return page


def _crops(explanation: Explanation, count: int) -> npt.NDArray[np.uint8]:
    """Pixels ``(k, C, h, w)`` of the patches with the most attention; none without pixels."""
    mean = explanation.mean_attention
    best = np.argsort(-mean, kind="stable")[: count if has_pixels(explanation.source) else 0]
    return read_crops(explanation.source, best[mean[best] > 0])


@dataclass(frozen=True)
class _Panel:
    """A map over an image; ``among`` are the values of all maps of the bag."""

    name: str
    text: str
    view: Thumbnail
    raster: AttentionMap
    among: Floats
    outlines: Sequence[Outline]


def _panels(explanation: Explanation) -> list[_Panel]:
    """The maps of every part, one after the other, each with those of all tasks."""
    parts, shares = explanation.by_part(), explanation.shares
    shown = sorted(range(len(parts)), key=lambda number: -shares[number])[:_MOST]
    tasks = list(explanation.all_attention)
    rows: dict[str, str | None] = {"attention": None}
    if len(tasks) > 1:
        rows = {"mean over tasks": None, **{task: task for task in tasks}}
    rasters, among, scales = {}, {}, {}
    for task in rows.values():
        values = explanation.mean_attention if task is None else explanation.all_attention[task]
        scales[task] = spread(values)
        rasters[task] = [
            attention_map(part.source, _attention(part, task), seen=part.seen, max_cells=_MAX_CELLS)
            for part in parts
        ]
        among[task] = all_values(rasters[task])
    panels = []
    for number in shown:
        part = parts[number]
        view = part.source.parts[0].thumbnail(THUMBNAIL_SIDE)
        for name, task in rows.items():
            found, text = scales[task], f"highest: {scales[task].scale}"
            if len(parts) > 1:
                values = _attention(part, task)
                share, most = 100 * values.sum(), 100 * values.max()
                text = f"{share:.3g} % of all attention, highest: {most:.3g} %"
                name = part.name if len(rows) == 1 else f"{part.name}: {name}"
            name = f"{name}: nearly uniform" if found.uniform else name
            raster = rasters[task][number]
            panels.append(_Panel(name, text, view, raster, among[task], part.outlines))
    return panels


def _attention(explanation: Explanation, task: str | None) -> Floats:
    return explanation.mean_attention if task is None else explanation.all_attention[task]


def tinted(attention: AttentionMap, among: Floats) -> npt.NDArray[np.uint8]:
    """``(rows, columns, 4)`` RGBA colours of the cells, more opaque with higher rank."""
    scaled = percentiles(attention.values, among=among)
    colours: npt.NDArray[np.uint8] = COLOUR_MAP(scaled, bytes=True)
    colours[..., 3] = np.rint(255 * _OPACITY * scaled)
    return colours


def _draw_map(axes: Axes, panel: _Panel) -> None:
    view, attention = panel.view, panel.raster
    draw_thumbnail(axes, view)
    limits = axes.get_xlim(), axes.get_ylim()
    rows, columns = attention.values.shape
    left, top = ((a - b) * view.scale for a, b in zip(attention.offset, view.offset, strict=True))
    side = attention.cell * view.scale
    extent = left, left + columns * side, top + rows * side, top
    axes.imshow(tinted(attention, panel.among), extent=extent, interpolation="nearest")
    axes.set(xlim=limits[0], ylim=limits[1], aspect="auto")


def _draw_bar(axes: Axes, among: Floats) -> None:
    draw_colours(axes)
    values = values_at(among, _TICKS)
    axes.set_xticks(_TICKS, [f"{100 * value:.3g} %" for value in values])
    axes.tick_params(length=2, labelsize=7.5, labelcolor=MUTED, color=RULE, pad=2)
    first, *_, last = axes.get_xticklabels()
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")
