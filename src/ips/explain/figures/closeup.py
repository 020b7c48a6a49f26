"""Figure: a slide, a closer look at its most attended region, and patches (Figure 1 of the paper).

Letters: K selected patches of an image. Lengths on the page are in inches.
"""

from __future__ import annotations

import numpy as np
from matplotlib.collections import PatchCollection
from matplotlib.patches import Rectangle
from matplotlib.patheffects import Normal, Stroke

from ips.explain.colours import INK
from ips.explain.explanation import Explanation
from ips.explain.figures.drawing import draw_crop, draw_outlines, draw_thumbnail, fit
from ips.explain.figures.page import DPI, MARGIN, Page, note_block, title_block
from ips.explain.maps import relative_attention
from ips.explain.marks import THUMBNAIL_SIDE, boxes
from ips.images import read_at
from ips.images.colour import as_rgb
from ips.patches import Part, Thumbnail, has_pixels, read_crops
from ips.patches.source import Box

_VIEW = 4.4, 4.6  # width and height of the box that the slide fits into
_REGION = 4.2, 2.8  # width and height of the region
_PATCHES = 21  # patches along the width of the region
_CROP, _GAP, _COLUMNS, _ROWS = 0.75, 0.1125, 5, 2
_CENTRES = 32  # patches of the highest attention that may be in the middle of the region
_OPACITY = 0.75
_CONTOUR = "#00b33c"
_NOTE = (
    "White: selected patches in the region, more opaque with more attention. Below: the patches "
    "with the most attention."
)


def closeup_page(explanation: Explanation) -> Page | None:
    """The image, the region with the most attention and its patches; None for a small image.

    The region is as wide as 21 patches. An image that is less than twice as large, or that has no
    pixels, needs no closer look.
    """
    part = explanation.source.parts[0]
    region = _region(explanation, part)
    if part.picture is None or region is None or not has_pixels(explanation.source):
        return None
    whole, near = part.thumbnail(THUMBNAIL_SIDE), _read(part, region)
    width, height = fit(whole, *_VIEW)
    right = MARGIN + width + 0.3
    inner = width + 0.3 + _REGION[0]
    contours = " Green: annotations." if explanation.outlines else ""
    title, note = title_block(explanation.title, inner), note_block(_NOTE + contours, inner)
    top = 0.35 + title.height
    crops_height = _ROWS * (_CROP + _GAP)
    bottom = top + max(height, _REGION[1] + 0.12 + crops_height) + 0.12
    page = Page(inner + 2 * MARGIN, bottom + 0.2 + note.height)
    page.write(MARGIN, 0.2, title)
    axes = page.axes(MARGIN, top, width, height)
    draw_thumbnail(axes, whole)
    draw_outlines(axes, whole, explanation.outlines, colour=_CONTOUR)
    left, upper, w, h = region
    corner = (np.array([left, upper]) - whole.offset) * whole.scale
    frame = Rectangle(tuple(corner), w * whole.scale, h * whole.scale, fill=False)
    rim = [Stroke(linewidth=3, foreground="white"), Normal()]  # visible on dark slides, too
    frame.set(edgecolor=INK, linewidth=1.4, path_effects=rim)
    axes.add_patch(frame)
    axes = page.axes(right, top, *_REGION)
    draw_thumbnail(axes, near)
    strength = relative_attention(explanation.attention.detach().cpu().double().numpy())  # (K,)
    marks = boxes(near, explanation.coords, extent=part.patch_side)
    squares = [Rectangle((x, y), a, b) for x, y, a, b in marks.tolist()]
    faces = [(1, 1, 1, _OPACITY * s) for s in strength.tolist()]
    axes.add_collection(
        PatchCollection(squares, facecolors=faces, edgecolors="none"), autolim=False
    )
    draw_outlines(axes, near, explanation.outlines, colour=_CONTOUR)
    chosen = explanation.indices[: _COLUMNS * _ROWS].cpu()
    for i, crop in enumerate(read_crops(explanation.source, chosen)):
        x = right + i % _COLUMNS * (_CROP + _GAP)
        y = top + _REGION[1] + 0.12 + i // _COLUMNS * (_CROP + _GAP)
        draw_crop(page, x, y, side=_CROP, patch=crop)
    page.write(MARGIN, bottom, note)
    return page


def _region(explanation: Explanation, part: Part) -> Box | None:
    """Left, top, width and height of the region; None if the image is hardly larger.

    Of the regions around the most attended patches, it is the one with the most attention.
    """
    size = np.array(_REGION) / _REGION[0] * _PATCHES * part.patch_side  # (2,)
    corner, whole = np.array(part.area[:2]), np.array(part.area[2:])
    if (whole < 2 * size).any():
        return None
    centres = explanation.source.coords + part.patch_side / 2  # (N, 2)
    mean = explanation.mean_attention
    best, most = corner, -1.0
    for centre in centres[np.argsort(-mean, kind="stable")[:_CENTRES]]:
        low = np.clip(centre - size / 2, corner, corner + whole - size)
        total = float(mean[((centres >= low) & (centres < low + size)).all(axis=1)].sum())
        if total > most:
            best, most = low, total
    left, top, width, height = np.rint([*best, *size]).astype(int).tolist()
    return left, top, width, height


def _read(part: Part, region: Box) -> Thumbnail:
    """The pixels of a region, as sharp as the page can show them, never enlarged."""
    assert part.picture is not None
    left, top, width, height = region
    downsample = max(1.0, width / (_REGION[0] * DPI))
    size = round(width / downsample), round(height / downsample)
    pixels = read_at(part.picture, (left, top), downsample=downsample, size=size)
    return Thumbnail(as_rgb(pixels), 1 / downsample, (left, top))
