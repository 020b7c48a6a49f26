"""Example images of a report: a small picture with the selected patches drawn over it.

Letters: K selected patches of an image, of which k are drawn, C classes.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO

import numpy as np
from matplotlib.colors import to_hex
from PIL import Image as PILImage
from PIL import ImageDraw

from ips.annotations import Outline
from ips.explain.colours import Colour
from ips.explain.explanation import Explanation
from ips.explain.figures.drawing import patch_colours
from ips.explain.maps import relative_attention
from ips.explain.marks import boxes, label_spots
from ips.explain.spread import Spread
from ips.images.colour import as_rgb
from ips.patches import Thumbnail, has_pixels, read_crops
from ips.patches.thumbnail import Pixels
from ips.statistics import Floats

_SIDE, _SMALL, _CROP = 360, 240, 96  # largest side of a picture, of one of several, of a patch
_SCREEN, _SCREEN_SMALL = 320, 120  # about the width of a picture on the screen
_DRAWN, _CROPS = 100, 4  # number of patches over the pictures and below them
_VIEWS = 6  # largest number of pictures of a bag


@dataclass(frozen=True)
class View:
    """The picture of one image at one magnification, with some of the most attended patches.

    Attributes:
        name: name of the image, with the magnification where there are several.
        share: share of the attention to the whole bag.
        image: the image as a data URL.
        size: width and height of the image in pixels.
        rows: numbers of the patches that are drawn on it, in descending order of attention.
        boxes: left, top, width and height ``(len(rows), 4)`` of these patches in the image.
        unit: length of about one pixel on the screen.
    """

    name: str
    share: float
    image: str
    size: tuple[int, int]
    rows: list[int]
    boxes: Floats
    unit: float

    def number_spots(self, count: int) -> list[tuple[int, float, float]]:
        """Numbers of the patches below ``count``, with the centres to write them at."""
        numbered = [row for row in self.rows if row < count]
        size = 14 * self.unit, 15 * self.unit
        spots = label_spots(self.boxes[: len(numbered)], size=size, area=self.size)
        return [(row, x, y) for row, (x, y) in zip(numbered, spots.tolist(), strict=True)]


@dataclass(frozen=True)
class Picture:
    """A bag with its most attended patches, small enough to keep in memory.

    Attributes:
        views: the image, or those with the most attention of several images or magnifications.
        images: how many of these there are.
        attention: ``(k,)`` attention of the drawn patches, in descending order.
        ratios: ``(k,)`` their share of the attention to all patches, in even shares.
        labels: most probable class of each patch; None without a patch-level head.
        crops: the patches with the highest attention as data URLs.
        selected: K, number of selected patches.
        patches: N, number of patches of the bag.
        spread: how evenly the attention is spread over all patches.
        canvas: whether an image shows only the outline of the patches, because they are features
            whose slide was not found.
    """

    views: list[View]
    images: int
    attention: Floats
    ratios: Floats
    labels: list[int] | None
    crops: list[str]
    selected: int
    patches: int
    spread: Spread
    canvas: bool = False

    @property
    def strength(self) -> Floats:
        return relative_attention(self.attention)

    def tints(self, palette: Mapping[int, Colour]) -> Iterator[tuple[str, float]]:
        """Colour and opacity of each patch."""
        colours, opacities = patch_colours(self.strength, self.labels, palette)
        return zip(map(to_hex, colours), opacities, strict=True)


def make_picture(explanation: Explanation) -> Picture:
    """The pictures of a bag; without pixels, of the outline of its patches.

    Of a bag of several images or magnifications, those with the most attention.
    """
    source, spread, labels = explanation.source, explanation.spread, explanation.patch_labels
    shares, indices = explanation.shares, explanation.indices[:_DRAWN].cpu()
    shown = sorted(range(len(shares)), key=lambda number: -shares[number])[:_VIEWS]
    crops: Iterable[Pixels] = ()
    if has_pixels(source):
        crops = read_crops(source, indices[:_CROPS])  # (_, C, h, w)
    return Picture(
        views=[_view(explanation, number) for number in sorted(shown)],
        images=len(shares),
        attention=explanation.attention[:_DRAWN].detach().cpu().double().numpy(),
        ratios=explanation.mean_attention[indices] * spread.patches,
        labels=None if labels is None else labels[:_DRAWN],
        crops=[_data_url(as_rgb(patch.transpose(1, 2, 0)), side=_CROP) for patch in crops],
        selected=len(explanation.indices),
        patches=explanation.patches,
        spread=spread,
        canvas=len(source.shape) != 3 and any(part.picture is None for part in source.parts),
    )


def _view(explanation: Explanation, number: int) -> View:
    """The picture of one part of a bag, with those of the drawn patches that belong to it."""
    part, several = explanation.source.parts[number], len(explanation.source.parts) > 1
    view = part.thumbnail(_SMALL if several else _SIDE)
    height, width = view.pixels.shape[:2]
    unit = max(width, height) / (_SCREEN_SMALL if several else _SCREEN)
    here = np.flatnonzero(explanation.part_numbers[:_DRAWN] == number)
    coords = explanation.coords[here]
    outlines = [outline for outline in explanation.outlines if outline.image == part.image]
    return View(
        name=part.title,
        share=explanation.shares[number],
        image=_data_url(_with_outlines(view, outlines), side=_SIDE),
        size=(width, height),
        rows=here.tolist(),
        boxes=boxes(view, coords, extent=part.patch_side, smallest=3 * unit),
        unit=unit,
    )


def _with_outlines(view: Thumbnail, outlines: Sequence[Outline]) -> Pixels:
    """The thumbnail with annotations as contours: black with a light rim."""
    picture = PILImage.fromarray(view.pixels)
    pen = ImageDraw.Draw(picture)
    for colour, width in (("white", 4), ("black", 2)):
        for outline in outlines:
            for line in outline.lines:
                points = (np.array(line, dtype=float) - np.array(view.offset)) * view.scale
                closed = [*points, points[0]] if outline.kind == "polygon" else [*points]
                pen.line([(x, y) for x, y in closed], fill=colour, width=width)
    return np.asarray(picture)


def _data_url(pixels: Pixels, *, side: int) -> str:
    """Pixels as a data URL, at most ``side`` wide and high: PNG or JPEG, whichever is smaller."""
    picture = PILImage.fromarray(pixels)
    picture.thumbnail((side, side), PILImage.Resampling.BOX)
    if (pixels[..., :1] == pixels).all():
        picture = picture.convert("L")
    files = {}
    for kind, options in {"png": {}, "jpeg": {"quality": 88}}.items():
        buffer = BytesIO()
        picture.save(buffer, format=kind, optimize=True, **options)
        files[kind] = buffer.getvalue()
    kind = min(files, key=lambda kind: len(files[kind]))
    return f"data:image/{kind};base64,{base64.b64encode(files[kind]).decode()}"
