"""Example images of a report: a small picture with the selected patches drawn over it.

Letters: K selected patches of an image, of which k are drawn, C classes.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO

from matplotlib import colormaps
from matplotlib.colors import to_hex
from PIL import Image as PILImage

from ips.explain.colours import OTHER, Colour, class_colours, shortened
from ips.explain.explanation import Explanation
from ips.explain.maps import relative_attention
from ips.explain.marks import boxes, label_spots
from ips.patches.thumbnail import Pixels, as_rgb
from ips.report.statistics import Floats

_SIDE, _CROP = 360, 96  # largest side of a picture and of a patch, in pixels
_DRAWN, _CROPS = 100, 4  # number of patches over a picture and below it
_COLOUR_MAP = colormaps["viridis"]


@dataclass(frozen=True)
class Picture:
    """One image with its most attended patches, small enough to keep in memory.

    Attributes:
        image: the image as a data URL.
        size: width and height of the image in pixels.
        boxes: left, top, width and height ``(k, 4)`` of the patches in the image.
        attention: ``(k,)`` attention of these patches, in descending order.
        labels: most probable class of each patch; None without a patch read-out.
        crops: the patches with the highest attention as data URLs.
        selected: K, number of selected patches.
        patches: N, number of patches of the image.
    """

    image: str
    size: tuple[int, int]
    boxes: Floats
    attention: Floats
    labels: list[int] | None
    crops: list[str]
    selected: int
    patches: int


@dataclass(frozen=True)
class Drawing:
    """A picture as the page draws it.

    Attributes:
        picture: the picture.
        unit: length of about one pixel on the screen.
        colours: ``(k,)`` colours of the patches.
        opacities: ``(k,)`` opacities of their tints.
        labels: names of the classes of the crops; None without a patch read-out.
        numbers: centres of the numbers of the crops in the picture.
    """

    picture: Picture
    unit: float
    colours: list[str]
    opacities: list[float]
    labels: list[str] | None
    numbers: list[tuple[float, float]]


def make_picture(explanation: Explanation) -> Picture:
    """The picture of an image, whose source must have pixels."""
    source = explanation.source
    part = source.parts[0]
    view = part.thumbnail(_SIDE)
    height, width = view.pixels.shape[:2]
    k = min(_DRAWN, len(explanation.indices))
    labels = None
    if explanation.patch_probabilities is not None:
        labels = explanation.patch_probabilities[:k].argmax(dim=1).tolist()
    crops = source.read(explanation.indices[:_CROPS].cpu()).cpu().numpy()  # (_, C, h, w)
    smallest = 3 * max(width, height) / 320
    return Picture(
        image=_data_url(view.pixels, side=_SIDE),
        size=(width, height),
        boxes=boxes(view, explanation.coords[:k], extent=part.patch_side, smallest=smallest),
        attention=explanation.attention[:k].detach().double().cpu().numpy(),
        labels=labels,
        crops=[_data_url(as_rgb(patch.transpose(1, 2, 0)), side=_CROP) for patch in crops],
        selected=len(explanation.indices),
        patches=explanation.patches,
    )


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


def class_palette(pictures: Sequence[Picture]) -> dict[int, Colour]:
    """A colour for each class of the drawn patches; empty without a patch read-out."""
    return class_colours(
        [
            (p.labels, relative_attention(p.attention).tolist())
            for p in pictures
            if p.labels is not None
        ]
    )


def draw(
    picture: Picture, palette: Mapping[int, Colour], class_names: Sequence[str] | None
) -> Drawing:
    """Colours and positions of everything over and below the picture."""
    unit = max(picture.size) / 320
    strength = relative_attention(picture.attention).tolist()
    if picture.labels is None:
        colours = [to_hex(_COLOUR_MAP(s)) for s in strength]
        opacities = [0.2 + 0.28 * s for s in strength]
    else:
        other = palette.get(OTHER, (0, 0, 0))
        colours = [to_hex(palette.get(label, other)) for label in picture.labels]
        opacities = [0.55 * s for s in strength]
    labels = None
    if picture.labels is not None:
        labels = [shortened(class_name(class_names, label), 14) for label in picture.labels]
    numbered = picture.boxes[: len(picture.crops)]
    numbers = label_spots(numbered, size=(14 * unit, 15 * unit), area=picture.size).tolist()
    return Drawing(picture, unit, colours, opacities, labels, numbers)


def class_name(names: Sequence[str] | None, label: int) -> str:
    """Name of a class of patches, or of those that share the last colour."""
    if label == OTHER:
        return "other"
    return str(label) if names is None else names[label]
