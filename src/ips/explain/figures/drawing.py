"""What several figures draw: thumbnails with marked patches, crops, and the scale of colours.

Letters: K patches of an image. Lengths on the page are in inches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.patches import Rectangle
from matplotlib.patheffects import Normal, Stroke

from ips.annotations import Outline
from ips.explain.colours import MUTED, OTHER, RULE, Colour
from ips.explain.figures.page import DPI, MARGIN, Page, chip, note_block, title_block
from ips.explain.marks import Floats, boxes, label_spots
from ips.patches import Coords, Thumbnail
from ips.patches.thumbnail import Pixels, resize

COLOUR_MAP = colormaps["viridis"]
PLACE_SIZE = 6.5  # font size of a position or file name
_OPACITY = 0.55
_GAP, _LINE = 0.1, 0.15  # in a grid: distance of patches, height of a line of their captions


def fit(view: Thumbnail, width: float, height: float) -> tuple[float, float]:
    """Width and height of a thumbnail that is scaled to fit into a box."""
    h, w = view.pixels.shape[:2]
    inch = max(w / width, h / height)
    return w / inch, h / inch


def attention_colours(strength: Floats) -> list[Colour]:
    """Colours of values from 0 to 1."""
    return [(r, g, b) for r, g, b, _ in COLOUR_MAP(strength).tolist()]


def patch_colours(
    strength: Floats, labels: Sequence[int] | None, palette: Mapping[int, Colour]
) -> tuple[list[Colour], list[float]]:
    """Colours and opacities of K patches: by class, or by attention if ``labels`` is None.

    Args:
        strength: ``(K,)`` attention from 0 to 1, see `ips.explain.maps.relative_attention`.
        labels: classes of the patches.
        palette: colours of the classes, see `ips.explain.colours.class_colours`.
    """
    if labels is None:  # patches of low attention stay visible
        return attention_colours(strength), (0.2 + _OPACITY / 2 * strength).tolist()
    colours = [palette[label if label in palette else OTHER] for label in labels]
    return colours, (_OPACITY * strength).tolist()


def draw_thumbnail(axes: Axes, view: Thumbnail) -> None:
    """Fill the axes with a thumbnail; their units become its pixels."""
    height, width = view.pixels.shape[:2]
    axes.imshow(view.pixels, extent=(0, width, height, 0), interpolation="antialiased")
    axes.set(xlim=(0, width), ylim=(height, 0), aspect="auto")


def draw_outlines(
    axes: Axes, view: Thumbnail, outlines: Sequence[Outline], *, colour: str = "black"
) -> None:
    """Annotations as contours over a thumbnail that fills the axes, with a light rim."""
    lines, points = [], []
    for outline in outlines:
        for line in outline.lines:
            place = (np.array(line, dtype=float) - np.array(view.offset)) * view.scale  # (n, 2)
            if outline.kind == "point":
                points.append(place)
            else:
                closed = np.concatenate([place, place[:1]]) if outline.kind == "polygon" else place
                lines.append(closed)
    rim = [Stroke(linewidth=2.6, foreground=(1, 1, 1, 0.7)), Normal()]
    contours = LineCollection(lines, colors=colour, linewidths=1.2, path_effects=rim)
    axes.add_collection(contours, autolim=False)
    if points:
        x, y = np.concatenate(points).T
        axes.plot(x, y, "o", color=colour, ms=3, path_effects=rim, scalex=False, scaley=False)


def draw_patches(
    axes: Axes,
    view: Thumbnail,
    *,
    width: float,
    coords: Coords,
    side: float,
    colours: Sequence[Colour],
    opacities: Sequence[float],
    numbered: int,
) -> None:
    """A thumbnail with a tint over every patch, and a box and a number at the first ones.

    Args:
        axes: axes to draw on.
        view: the thumbnail.
        width: width of the axes in inches.
        coords: ``(K, 2)`` corners of the patches, in order of descending attention.
        side: side of a patch in full-resolution pixels.
        colours: colours of the patches.
        opacities: opacities of the tints.
        numbered: number of patches to number.
    """
    draw_thumbnail(axes, view)
    h, w = view.pixels.shape[:2]
    inch = w / width
    tints = boxes(view, coords, extent=side, smallest=0.03 * inch)
    squares = [Rectangle((x, y), w, h) for x, y, w, h in tints[::-1].tolist()]  # strongest on top
    faces = [(*colour, a) for colour, a in zip(colours, opacities, strict=True)][::-1]
    tinted = PatchCollection(squares, facecolors=faces, edgecolors="none")
    axes.add_collection(tinted, autolim=False)
    marks = boxes(view, coords[:numbered], extent=side, smallest=0.09 * inch)
    spots = label_spots(marks, size=(0.16 * inch, 0.17 * inch), area=(w, h))
    for i, (x, y, *size) in reversed(list(enumerate(marks.tolist()))):
        axes.add_patch(Rectangle((x, y), *size, fill=False, edgecolor=colours[i], linewidth=1.3))
    for i, (x, y) in enumerate(spots.tolist()):
        axes.text(x, y, str(i + 1), ha="center", va="center", clip_on=False, **chip(colours[i]))


def draw_crop(
    page: Page,
    x: float,
    y: float,
    *,
    side: float,
    patch: Pixels,
    colour: Colour | str = RULE,
    line: float = 0.8,
) -> None:
    """The pixels ``(C, h, w)`` of a patch as a square with its top-left corner at x, y."""
    pixels = round(side * DPI)
    page.picture(x, y, resize(patch.transpose(1, 2, 0), (pixels, pixels)))
    page.frame(x, y, side, side, colour=colour, line=line)


def draw_number(
    page: Page, x: float, y: float, *, number: int, colour: Colour, attention: float
) -> None:
    """The number of a patch, centred vertically at y, and its share of the attention."""
    page.write(x + 0.07, y, str(number), va="center", ha="center", **chip(colour))
    page.write(x + 0.21, y, f"{100 * attention:.1f} %", size=8, va="center")


def draw_grid(
    path: Path,
    *,
    patches: Sequence[Pixels] | Pixels,
    captions: Sequence[Sequence[str]],
    side: float,
    columns: int,
    title: str,
    note: str,
) -> None:
    """Draw a PNG of patches ``(C, h, w)`` row by row, each with a caption of up to four lines."""
    step = side + _GAP
    pitch = step + 0.1 + _LINE * max(map(len, captions), default=0)
    inner = columns * step - _GAP
    header, footer = title_block(title, inner), note_block(note, inner)
    body = 0.3 + header.height
    below = body + ceil(len(captions) / columns) * pitch
    page = Page(inner + 2 * MARGIN, below + 0.2 + footer.height)
    page.write(MARGIN, 0.2, header)
    styles: list[dict[str, Any]] = [{"size": 8}, {"size": PLACE_SIZE, "color": MUTED}]
    styles += [{"size": 7}, {"size": 7}]
    for i, (patch, caption) in enumerate(zip(patches, captions, strict=True)):
        x, y = MARGIN + i % columns * step, body + i // columns * pitch
        draw_crop(page, x, y, side=side, patch=patch)
        for line, (text, style) in enumerate(zip(caption, styles, strict=False)):
            page.write(x, y + side + 0.05 + _LINE * line, text, **style)
    page.write(MARGIN, below, footer)
    page.save(path)


def draw_scale(page: Page, y: float, *, tick: Callable[[float], str], text: str) -> None:
    """The colours of attention from 0 to the maximum; ``tick`` formats a share of the maximum."""
    axes = page.axes(MARGIN, y, 2.6, 0.13)
    draw_colours(axes)
    shares = [0.0, 0.1, 0.25, 0.5, 1.0]
    axes.set_xticks(np.sqrt(shares), [tick(share) for share in shares])
    axes.tick_params(length=2, labelsize=8, labelcolor=MUTED, color=RULE, pad=2)
    page.write(MARGIN + 2.8, y + 0.065, text, size=9, va="center")


def draw_colours(axes: Axes) -> None:
    """Fill the axes with the colours of attention, from low to high."""
    axes.imshow(np.linspace(0, 1, 256)[None], cmap=COLOUR_MAP, aspect="auto", extent=(0, 1, 0, 1))
