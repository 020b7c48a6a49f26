"""Figure: the selected patches over the image, and the most attended ones beside it.

Letters: K selected patches of an image. Lengths on the page are in inches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from ips.explain.colours import INK, MUTED, Colour, class_colours, class_name, shortened
from ips.explain.explanation import Explanation
from ips.explain.figures.drawing import (
    draw_crop,
    draw_number,
    draw_outlines,
    draw_patches,
    draw_scale,
    fit,
    patch_colours,
)
from ips.explain.figures.page import MARGIN, Page, note_block, title_block
from ips.explain.maps import Floats, relative_attention
from ips.explain.marks import THUMBNAIL_SIDE
from ips.patches import Thumbnail, has_pixels, read_crops

_VIEW = 5.8, 4.8  # width and height of the box that a thumbnail fits into
_PARTS = 4  # images of a bag that are drawn
_CROPS_PER_COLUMN = 4
_CROP, _CAPTION, _GAP, _PANEL_GAP = 0.82, 0.36, 0.25, 0.45  # side, height and two widths
_LETTER = 0.075  # mean width of a letter in the legend


@dataclass(frozen=True)
class _Panel:
    """One image; ``labels``, the predicted patch classes, is None without a patch-level head.

    ``spread`` says how evenly attention is spread, or which share of it an image of several has.
    """

    explanation: Explanation
    title: str
    spread: str
    uniform: bool
    view: Thumbnail
    strength: Floats
    labels: list[int] | None


def draw_attention(
    path: Path,
    explanations: Sequence[Explanation],
    *,
    titles: Sequence[str] | None = None,
    top: int = 8,
) -> None:
    """Draw one or more images into a PNG, two in a row (Sect. 4.5).

    The colour of a patch is its predicted class and its opacity is its attention; without a
    patch-level head, the colour is the attention. Attention is shown relative to the highest value
    of the image, since the softmax over many patches gives values close to 0. Of a bag of several
    images or magnifications, those with the most attention have a panel each.

    Args:
        path: PNG to write.
        explanations: explanations of the images.
        titles: title of each image; the title of its explanation by default.
        top: how many patches are numbered and shown beside the image.
    """
    titles = [e.title for e in explanations] if titles is None else titles
    pairs = zip(explanations, titles, strict=True)
    panels = [panel for explanation, title in pairs for panel in _panels(explanation, title)]
    top = min(top, max(len(panel.strength) for panel in panels))
    palette = class_colours([(p.labels, p.strength.tolist()) for p in panels if p.labels])
    view_width = max(fit(panel.view, *_VIEW)[0] for panel in panels)
    cell = max(view_width + ceil(top / _CROPS_PER_COLUMN) * (_GAP + _CROP), 5.6)
    columns = min(2, len(panels))
    inner = columns * (cell + _PANEL_GAP) - _PANEL_GAP
    headers = [title_block(panel.title, cell) for panel in panels]
    header = 0.1 + max(block.height for block in headers)
    row_height = header + _VIEW[1] + 0.5
    body = 0.15 + ceil(len(panels) / columns) * row_height
    classes = explanations[0].patch_classes
    names = {label: shortened(class_name(classes, label), 28) for label in palette}
    entry_width = 0.45 + _LETTER * max(map(len, names.values()), default=1)
    per_line = max(1, int(inner / entry_width))
    legend = 0.24 * ceil(len(names) / per_line) if palette else 0.4
    note = note_block(_note(palette, top), inner)
    page = Page(inner + 2 * MARGIN, body + legend + 0.25 + note.height)

    for i, (panel, block) in enumerate(zip(panels, headers, strict=True)):
        x, y = MARGIN + i % columns * (cell + _PANEL_GAP), 0.2 + i // columns * row_height
        page.write(x, y, block)
        _draw_panel(page, (x, y + header), panel, view_width=view_width, palette=palette, top=top)
    for i, (label, name) in enumerate(names.items()):
        x, y = MARGIN + i % per_line * entry_width, body + i // per_line * 0.24
        page.axes(x, y, 0.16, 0.16).set_facecolor(palette[label])
        page.write(x + 0.22, y + 0.08, name, size=9, va="center")
    if not palette:
        text = "attention, as a share of the highest attention in the image"
        draw_scale(page, body, tick=lambda share: f"{share:.0%}", text=text)
    page.write(MARGIN, body + legend + 0.05, note)
    page.save(path)


def _panels(explanation: Explanation, title: str) -> list[_Panel]:
    """A panel for the image, or for those with the most attention of several."""
    parts, shares = explanation.by_part(), explanation.shares
    highest, found = float(explanation.attention.max()), explanation.spread
    panels = []
    for number in sorted(range(len(parts)), key=lambda number: -shares[number])[:_PARTS]:
        part, text, words = parts[number], title, str(found)
        if len(parts) > 1:
            text = f"{title} · {part.name}"
            words = f"{100 * shares[number]:.3g} % of all attention is in this one of {len(parts)}"
        strength = relative_attention(part.attention.detach().cpu().double().numpy(), highest)
        view = part.source.parts[0].thumbnail(THUMBNAIL_SIDE)
        labels = part.patch_labels
        panels.append(_Panel(part, text, words, found.uniform, view, strength, labels))
    return panels


def _draw_panel(
    page: Page,
    corner: tuple[float, float],
    panel: _Panel,
    *,
    view_width: float,
    palette: Mapping[int, Colour],
    top: int,
) -> None:
    """Draw a thumbnail in a box of ``view_width`` inches, and the top patches to its right."""
    x, y = corner
    explanation, source = panel.explanation, panel.explanation.source
    colours, opacities = patch_colours(panel.strength, panel.labels, palette)
    width, height = fit(panel.view, *_VIEW)
    axes = page.axes(x, y, width, height)
    draw_patches(
        axes,
        panel.view,
        width=width,
        coords=explanation.coords,
        side=source.parts[0].patch_side,
        colours=colours,
        opacities=opacities,
        numbered=top,
    )
    draw_outlines(axes, panel.view, explanation.outlines)
    selected = f"{len(panel.strength):,} of {explanation.patches:,} patches selected"
    page.write(x, y + height + 0.08, selected, size=8, color=MUTED)
    style = {"color": INK, "weight": "bold"} if panel.uniform else {"color": MUTED}
    page.write(x, y + height + 0.23, panel.spread, size=8, **style)

    indices, scores = explanation.indices[:top].cpu(), explanation.patch_scores
    crops = read_crops(source, indices) if has_pixels(source) and top else None
    for i in range(len(indices)):
        left = x + view_width + _GAP + i // _CROPS_PER_COLUMN * (_CROP + _GAP)
        above = y + i % _CROPS_PER_COLUMN * (_VIEW[1] - _CROP - _CAPTION) / (_CROPS_PER_COLUMN - 1)
        if crops is not None:
            draw_crop(page, left, above, side=_CROP, patch=crops[i], colour=colours[i], line=2)
        else:  # features have a position, but no pixels
            page.frame(left, above, _CROP, _CROP, colour=colours[i], line=2)
            place = "x {:,}\ny {:,}".format(*explanation.coords[i].tolist())
            page.write(left + _CROP / 2, above + _CROP / 2, place, size=8, ha="center", va="center")
        below, share = above + _CROP + 0.13, float(explanation.attention[i])
        draw_number(page, left, below, number=i + 1, colour=colours[i], attention=share)
        if panel.labels is not None and scores is not None:
            name = class_name(explanation.patch_classes, panel.labels[i])
            with_score = f"{name} ({scores[i].max():.2f})"
            text = with_score if len(with_score) <= 16 else shortened(name, 16)
            page.write(left, below + 0.1, text, size=8, color=MUTED)


def _note(palette: Mapping[int, Colour], top: int) -> str:
    numbers = f"Numbers: the {top} patches with the highest attention, and their share of it."
    if not palette:
        return numbers
    return (
        "Colour: predicted class of the patch, with its probability. Opacity: square root of the "
        f"attention relative to the highest attention in the image. {numbers}"
    )
