"""Where the model looked: the patches it kept drawn over the image, the strongest beside it.

Letters: K patches kept of an image, C classes. Lengths on the page are in inches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from ips.explain.marks import THUMBNAIL_SIDE, boxes, label_spots
from ips.explain.page import MUTED, PALETTE, RULE, Colour, Page, chip, shortened, wrapped
from ips.models import Prediction
from ips.patches import PatchSource
from ips.patches.thumbnail import Thumbnail, as_rgb

Floats = npt.NDArray[np.float64]

_VIEW = 5.8, 4.8  # width and height that a thumbnail fits into
_CROPS = 4  # below each other beside it
_CROP, _CAPTION, _GAP = 0.82, 0.36, 0.25
_MARGIN, _LINE, _LETTER = 0.3, 0.2, 0.075
_OPACITY = 0.55
_MAP = colormaps["viridis"]
_OTHER = -1  # the class of a patch whose own has no colour


def draw_attention(
    path: Path,
    *,
    predictions: Sequence[Prediction],
    sources: Sequence[PatchSource],
    titles: Sequence[str],
    names: Sequence[str] | None = None,
    top: int = 8,
) -> None:
    """One PNG for one or more images, two beside each other (Sect. 4.5).

    A patch is coloured by the class that the read-out head sees in it, and the more opaque the
    more attention it got; without such a head the colour is its attention. Attention counts
    relative to the image's strongest patch, since a softmax over many patches would look empty.

    Args:
        path: of the PNG.
        predictions: of the images.
        sources: their patches, in the same order.
        titles: what to write above each image.
        names: of the classes of the read-out head, their numbers by default.
        top: how many patches to number and to show beside the image.
    """
    looks = [_look(p, source, top) for p, source in zip(predictions, sources, strict=True)]
    palette = class_colours([(k.labels, k.strength.tolist()) for k in looks if k.labels])
    beside = ceil(max(look.shown for look in looks) / _CROPS)
    columns = min(2, len(looks))
    room = max(_fitted(look.view)[0] for look in looks)
    cell = max(room + beside * (_GAP + _CROP), 5.6)
    width = 2 * _MARGIN + columns * (cell + 0.45) - 0.45
    headers = [wrapped(title, int(cell * 12.5)) for title in titles]
    header = 0.1 + _LINE * max(text.count("\n") + 1 for text in headers)
    pitch = header + _VIEW[1] + 0.5
    body = 0.15 + ceil(len(looks) / columns) * pitch
    words = [shortened(_name(names, label), 28) for label in palette]
    step = 0.45 + _LETTER * max(map(len, words), default=1)
    per_line = max(1, int((width - 2 * _MARGIN) / step))
    legend = 0.24 * ceil(len(words) / per_line) if palette else 0.4
    note = wrapped(_note(palette, looks), int((width - 2 * _MARGIN) * 16))
    page = Page(width, body + legend + 0.25 + 0.17 * (note.count("\n") + 1))

    for i, (look, text) in enumerate(zip(looks, headers, strict=True)):
        x, y = _MARGIN + i % columns * (cell + 0.45), 0.2 + i // columns * pitch
        page.write(x, y, text, size=10, weight="bold", linespacing=1.3)
        _draw_image(page, (x, y + header), look, room=room, names=names, palette=palette)
    for i, (word, colour) in enumerate(zip(words, palette.values(), strict=True)):
        x, y = _MARGIN + i % per_line * step, body + i // per_line * 0.24
        page.axes(x, y, 0.16, 0.16).set_facecolor(colour)
        page.write(x + 0.22, y + 0.08, word, size=9, va="center")
    if not palette:
        _draw_bar(page, body)
    page.write(_MARGIN, body + legend + 0.05, note, size=8, color=MUTED, linespacing=1.35)
    page.save(path)


def relative(attention: Floats) -> Floats:
    """Attention ``(K,)`` from 0 to 1: the square root of its share of the strongest patch's."""
    return np.sqrt(attention / max(float(attention.max()), 1e-12))


def class_colours(seen: Sequence[tuple[list[int], list[float]]]) -> dict[int, Colour]:
    """Colours of the classes of patches, by number; of many classes the rest share the last."""
    weight: dict[int, float] = {}
    for labels, strengths in seen:
        for label, strength in zip(labels, strengths, strict=True):
            weight[label] = weight.get(label, 0.0) + strength
    if max(weight, default=0) < len(PALETTE):  # a class then has its colour in every picture
        return {label: to_rgb(PALETTE[label]) for label in sorted(weight)}
    ranked = sorted(weight, key=weight.__getitem__, reverse=True)[: len(PALETTE) - 1]
    chosen = sorted(ranked) + [_OTHER] * (len(weight) > len(ranked))
    return {label: to_rgb(PALETTE[i]) for i, label in enumerate(chosen)}


@dataclass(frozen=True)
class Look:
    """What is drawn of one image: ``labels`` and ``scores`` only with a read-out head."""

    prediction: Prediction
    source: PatchSource
    view: Thumbnail
    strength: Floats
    labels: list[int] | None
    scores: list[float] | None
    shown: int


def _look(prediction: Prediction, source: PatchSource, top: int) -> Look:
    attention = prediction.attention.detach().double().cpu().numpy()
    labels, scores = None, None
    if prediction.patch_probabilities is not None:
        p = prediction.patch_probabilities.detach().double().cpu().numpy()  # (K, C)
        labels, scores = p.argmax(axis=1).tolist(), p.max(axis=1).tolist()
    shown = min(top, len(attention))
    view = source.parts[0].thumbnail(THUMBNAIL_SIDE)
    return Look(prediction, source, view, relative(attention), labels, scores, shown)


def _draw_image(
    page: Page,
    corner: tuple[float, float],
    look: Look,
    *,
    room: float,
    names: Sequence[str] | None,
    palette: Mapping[int, Colour],
) -> None:
    """A thumbnail, and the crops of its strongest patches to the right of its ``room``."""
    x, y = corner
    if look.labels is None:
        colours = [to_rgb(_MAP(s)) for s in look.strength.tolist()]
    else:
        colours = [palette[label if label in palette else _OTHER] for label in look.labels]
    width, height = _fitted(look.view)
    _draw_view(page.axes(x, y, width, height), look, colours)
    kept = f"{len(look.strength):,} of {look.prediction.patches:,} patches kept"
    page.write(x, y + height + 0.08, kept, size=8, color=MUTED)

    indices = look.prediction.indices[: look.shown].cpu()
    pixels = len(look.source.shape) == 3
    crops = look.source.read(indices).cpu().numpy() if pixels and look.shown else None
    for i in range(look.shown):
        left = x + room + _GAP + i // _CROPS * (_CROP + _GAP)
        top = y + i % _CROPS * (_VIEW[1] - _CROP - _CAPTION) / (_CROPS - 1)
        axes = page.axes(left, top, _CROP, _CROP)
        axes.spines[:].set(color=colours[i], linewidth=2)
        if crops is not None:
            axes.imshow(as_rgb(crops[i].transpose(1, 2, 0)), interpolation="nearest", aspect="auto")
        else:  # no pixels to show, but the place can be looked up
            place = "x {:,}\ny {:,}".format(*look.prediction.coords[i].tolist())
            page.write(left + _CROP / 2, top + _CROP / 2, place, size=8, ha="center", va="center")
        below = top + _CROP + 0.13
        share = f"{100 * float(look.prediction.attention[i]):.1f} %"
        page.write(left + 0.07, below, str(i + 1), va="center", ha="center", **chip(colours[i]))
        page.write(left + 0.22, below, share, size=8.5, va="center")
        if look.labels is not None and look.scores is not None:
            name = _name(names, look.labels[i])
            scored = f"{name} ({look.scores[i]:.2f})"
            text = scored if len(scored) <= 16 else shortened(name, 16)
            page.write(left, below + 0.1, text, size=8, color=MUTED)


def _draw_view(axes: Axes, look: Look, colours: Sequence[Colour]) -> None:
    """The whole image, every patch kept as a tint, the strongest with a box and a number."""
    view = look.view
    height, width = view.pixels.shape[:2]
    axes.imshow(view.pixels, extent=(0, width, height, 0), interpolation="antialiased")
    axes.set(xlim=(0, width), ylim=(height, 0), aspect="auto")
    inch = width / _fitted(view)[0]
    coords, extent = look.prediction.coords, look.source.parts[0].patch_side
    tints = boxes(view, coords, extent=extent, smallest=0.03 * inch)
    fill = [(*c, _OPACITY * s) for c, s in zip(colours, look.strength.tolist(), strict=True)]
    if look.labels is None:
        # The colour says it already; what is weak only must not hide the image.
        fill = [(r, g, b, 0.2 + a / 2) for r, g, b, a in fill]
    squares = [Rectangle((x, y), w, h) for x, y, w, h in tints[::-1].tolist()]  # weakest first
    tinted = PatchCollection(squares, facecolors=fill[::-1], edgecolors="none")
    axes.add_collection(tinted, autolim=False)
    marks = boxes(view, coords[: look.shown], extent=extent, smallest=0.09 * inch)
    spots = label_spots(marks, size=(0.16 * inch, 0.17 * inch), area=(width, height))
    for i in reversed(range(look.shown)):
        x, y, w, h = marks[i].tolist()
        axes.add_patch(Rectangle((x, y), w, h, fill=False, edgecolor=colours[i], linewidth=1.3))
    for i, (x, y) in enumerate(spots.tolist()):
        axes.text(x, y, str(i + 1), ha="center", va="center", clip_on=False, **chip(colours[i]))


def _draw_bar(page: Page, y: float) -> None:
    """The colours of attention, from none to that of the strongest patch."""
    axes = page.axes(_MARGIN, y, 2.6, 0.13)
    axes.imshow(np.linspace(0, 1, 256)[None], cmap=_MAP, aspect="auto", extent=(0, 1, 0, 1))
    shares = [0.0, 0.1, 0.25, 0.5, 1.0]
    axes.set_xticks(np.sqrt(shares), [f"{share:.0%}" for share in shares])
    axes.tick_params(length=2, labelsize=8, labelcolor=MUTED, color=RULE, pad=2)
    text = "attention, as a share of the strongest patch's"
    page.write(_MARGIN + 2.8, y + 0.065, text, size=9, va="center")


def _note(palette: Mapping[int, Colour], looks: Sequence[Look]) -> str:
    top = max(look.shown for look in looks)
    boxed = f"Numbers: the {top} patches with most attention, and their per cent of it."
    if not palette:
        return boxed
    return (
        "Colour: the class that the patch-level head reads, its score in brackets. Opacity: "
        f"square root of attention relative to the image's strongest patch. {boxed}"
    )


def _fitted(view: Thumbnail) -> tuple[float, float]:
    """Width and height of a thumbnail on the page."""
    height, width = view.pixels.shape[:2]
    inch = max(width / _VIEW[0], height / _VIEW[1])
    return width / inch, height / inch


def _name(names: Sequence[str] | None, label: int) -> str:
    if label == _OTHER:
        return "other"
    return str(label) if names is None else names[label]
