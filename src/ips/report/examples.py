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

_SIDE, _CROP = 360, 96  # largest side of a picture and of a patch, in pixels
_DRAWN, _CROPS = 100, 4  # number of patches over a picture and below it


@dataclass(frozen=True)
class Picture:
    """One image with its most attended patches, small enough to keep in memory.

    Attributes:
        image: the image as a data URL.
        size: width and height of the image in pixels.
        boxes: left, top, width and height ``(k, 4)`` of the patches in the image.
        attention: ``(k,)`` attention of these patches, in descending order.
        ratios: ``(k,)`` their share of the attention to all patches, in even shares.
        labels: most probable class of each patch; None without a patch-level head.
        crops: the patches with the highest attention as data URLs.
        selected: K, number of selected patches.
        patches: N, number of patches of the image.
        spread: how evenly the attention is spread over all patches.
        canvas: whether the image shows only the outline of the patches, because they are features
            whose slide was not found.
        shown: which image this is, if it is one of several of a bag.
    """

    image: str
    size: tuple[int, int]
    boxes: Floats
    attention: Floats
    ratios: Floats
    labels: list[int] | None
    crops: list[str]
    selected: int
    patches: int
    spread: Spread
    canvas: bool = False
    shown: str = ""

    @property
    def unit(self) -> float:
        """Length of about one pixel on the screen."""
        return max(self.size) / 320

    @property
    def strength(self) -> Floats:
        return relative_attention(self.attention)

    def number_spots(self) -> list[tuple[float, float]]:
        """Centres of the numbers of the crops."""
        size = 14 * self.unit, 15 * self.unit
        marks = self.boxes[: len(self.crops)]
        return [(x, y) for x, y in label_spots(marks, size=size, area=self.size).tolist()]

    def tints(self, palette: Mapping[int, Colour]) -> Iterator[tuple[str, float]]:
        """Colour and opacity of each patch."""
        colours, opacities = patch_colours(self.strength, self.labels, palette)
        return zip(map(to_hex, colours), opacities, strict=True)


def make_picture(explanation: Explanation) -> Picture:
    """The picture of an image; without pixels, of the outline of its patches.

    Of a bag of several images or magnifications, that whose selected patches have most attention.
    """
    parts = explanation.by_part()
    drawn = max(parts, key=lambda each: float(each.attention.sum()))
    shown = f"{drawn.name}, one of {len(parts)}" if len(parts) > 1 else ""
    source, labels = drawn.source, drawn.patch_labels
    part = source.parts[0]
    view = part.thumbnail(_SIDE)
    height, width = view.pixels.shape[:2]
    smallest = 3 * max(width, height) / 320
    coords, spread = drawn.coords[:_DRAWN], explanation.spread
    crops: Iterable[Pixels] = ()
    if has_pixels(source):
        crops = read_crops(source, drawn.indices[:_CROPS].cpu())  # (_, C, h, w)
    return Picture(
        image=_data_url(_with_outlines(view, drawn.outlines), side=_SIDE),
        size=(width, height),
        boxes=boxes(view, coords, extent=part.patch_side, smallest=smallest),
        attention=drawn.attention[:_DRAWN].detach().cpu().double().numpy(),
        ratios=drawn.mean_attention[drawn.indices[:_DRAWN].cpu()] * spread.patches,
        labels=None if labels is None else labels[:_DRAWN],
        crops=[_data_url(as_rgb(patch.transpose(1, 2, 0)), side=_CROP) for patch in crops],
        selected=len(explanation.indices),
        patches=explanation.patches,
        spread=spread,
        canvas=len(source.shape) != 3 and part.picture is None,
        shown=shown,
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
