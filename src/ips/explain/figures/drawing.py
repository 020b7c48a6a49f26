"""What several figures draw: a thumbnail with marked patches, and the scale of its colours.

Letters: K patches of an image.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.patches import Rectangle

from ips.explain.colours import MUTED, RULE, Colour
from ips.explain.figures.page import MARGIN, Page, chip
from ips.explain.marks import Floats, boxes, label_spots
from ips.patches import Coords, Thumbnail

COLOUR_MAP = colormaps["viridis"]


def fit(view: Thumbnail, width: float, height: float) -> tuple[float, float]:
    """Width and height of a thumbnail that is scaled to fit into a box."""
    h, w = view.pixels.shape[:2]
    inch = max(w / width, h / height)
    return w / inch, h / inch


def attention_colours(strength: Floats) -> list[Colour]:
    """Colours of values from 0 to 1."""
    return [(r, g, b) for r, g, b, _ in COLOUR_MAP(strength).tolist()]


def draw_thumbnail(axes: Axes, view: Thumbnail) -> None:
    """Fill the axes with a thumbnail; their units become its pixels."""
    height, width = view.pixels.shape[:2]
    axes.imshow(view.pixels, extent=(0, width, height, 0), interpolation="antialiased")
    axes.set(xlim=(0, width), ylim=(height, 0), aspect="auto")


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
