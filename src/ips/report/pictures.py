"""The images of a report: small, with the patches that the model kept drawn over them.

Letters: K patches kept of an image, of which k are drawn, C classes.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO

from matplotlib import colormaps
from matplotlib.colors import to_hex
from PIL import Image as PILImage

from ips.explain.attention import class_colours, relative
from ips.explain.marks import boxes, label_spots
from ips.explain.page import Colour, shortened
from ips.models import Prediction
from ips.patches import PatchSource
from ips.patches.thumbnail import Pixels, as_rgb
from ips.report.html import Html, el
from ips.report.statistics import Floats

_SIDE, _CROP = 360, 96  # pixels of an image and of a patch at the most
_DRAWN, _CROPS = 100, 4  # patches over an image and beside it
_MAP = colormaps["viridis"]


@dataclass(frozen=True)
class Sight:
    """What is shown of one image, small enough to keep.

    Attributes:
        picture: the image as a data address, ``size`` pixels wide and high.
        marks: left, top, width and height ``(k, 4)`` of the strongest patches in it.
        attention: ``(k,)`` theirs.
        labels: the class that the read-out head sees in each; None without such a head.
        crops: the very strongest as data addresses.
        kept: K.
        patches: how many there were to choose from.
    """

    picture: str
    size: tuple[int, int]
    marks: Floats
    attention: Floats
    labels: list[int] | None
    crops: list[str]
    kept: int
    patches: int

    @property
    def unit(self) -> float:
        """A length that is about a pixel on the screen, in those of the picture."""
        return max(self.size) / 320


def look(source: PatchSource, prediction: Prediction) -> Sight:
    """The image behind ``source``, which has pixels, and where the model looked."""
    part = source.parts[0]
    view = part.thumbnail(_SIDE)
    height, width = view.pixels.shape[:2]
    k = min(_DRAWN, len(prediction.indices))
    smallest = 3 * max(width, height) / 320
    labels = None
    if prediction.patch_probabilities is not None:
        labels = prediction.patch_probabilities[:k].argmax(dim=1).tolist()
    strongest = source.read(prediction.indices[:_CROPS].cpu()).cpu().numpy()  # (_, C, h, w)
    return Sight(
        picture=_encoded(view.pixels),
        size=(width, height),
        marks=boxes(view, prediction.coords[:k], extent=part.patch_side, smallest=smallest),
        attention=prediction.attention[:k].detach().double().cpu().numpy(),
        labels=labels,
        crops=[_encoded(as_rgb(patch.transpose(1, 2, 0)), side=_CROP) for patch in strongest],
        kept=len(prediction.indices),
        patches=prediction.patches,
    )


def _encoded(pixels: Pixels, *, side: int = _SIDE) -> str:
    """Pixels as a data address, at most ``side`` wide and high: PNG or JPEG, the smaller one."""
    picture = PILImage.fromarray(pixels)
    picture.thumbnail((side, side), PILImage.Resampling.BOX)
    if (pixels[..., :1] == pixels).all():
        picture = picture.convert("L")
    files = {}
    for kind in ("png", "jpeg"):
        buffer = BytesIO()
        picture.save(
            buffer, format=kind, optimize=True, **({"quality": 88} if kind == "jpeg" else {})
        )
        files[kind] = buffer.getvalue()
    kind = min(files, key=lambda kind: len(files[kind]))
    return f"data:image/{kind};base64,{base64.b64encode(files[kind]).decode()}"


def palette_of(sights: Sequence[Sight]) -> dict[int, Colour]:
    """A colour for each class that a read-out head saw; none without such a head."""
    seen = [(s.labels, relative(s.attention).tolist()) for s in sights if s.labels is not None]
    return class_colours(seen)


def draw_sight(sight: Sight, palette: Mapping[int, Colour], *, name: str) -> Html:
    """The image, a tint over every patch drawn, and numbers at the strongest."""
    (width, height), unit = sight.size, sight.unit
    strength = relative(sight.attention).tolist()
    colours = _colours(sight, palette)
    small = "pixels" if max(sight.size) < 200 else None
    parts = [el("image", href=sight.picture, width=width, height=height, class_=small)]
    tints = list(zip(sight.marks.tolist(), colours, strength, strict=True))
    for (x, y, w, h), colour, share in reversed(tints):  # weakest first
        faint = 0.55 * share if sight.labels is not None else 0.2 + 0.28 * share
        parts.append(el("rect", x=x, y=y, width=w, height=h, fill=colour, fill_opacity=faint))
    top = sight.marks[: len(sight.crops)]
    for (x, y, w, h), colour in reversed(list(zip(top.tolist(), colours, strict=False))):
        line = 1.6 * unit
        edge = {"fill": "none", "stroke": colour}
        parts.append(el("rect", x=x, y=y, width=w, height=h, stroke_width=line, **edge))
    spots = label_spots(top, size=(14 * unit, 15 * unit), area=sight.size)
    for number, ((x, y), colour) in enumerate(zip(spots.tolist(), colours, strict=False), start=1):
        parts.append(_chip(x, y, str(number), colour, unit))
    label = f"{name} with the {len(tints)} patches of highest attention marked"
    box = f"0 0 {width} {height}"
    return el("svg", *parts, view_box=box, role="img", aria_label=label, class_="sight")


def draw_crops(sight: Sight, palette: Mapping[int, Colour], names: Sequence[str] | None) -> Html:
    """The strongest patches beside each other, with their attention and what is seen in them."""
    items = []
    for i, (crop, colour) in enumerate(zip(sight.crops, _colours(sight, palette), strict=False)):
        edge = el("rect", x=1, y=1, width=62, height=62, fill="none", stroke=colour, stroke_width=2)
        picture = el("image", href=crop, width=64, height=64, class_="pixels")
        label = f"patch {i + 1}"
        square = el(
            "svg", picture, edge, _chip(9.0, 9.5, str(i + 1), colour, 1.0),
            view_box="0 0 64 64", role="img", aria_label=label,
        )  # fmt: skip
        words = [f"{100 * sight.attention[i]:.1f} %"]
        if sight.labels is not None:
            words.append(shortened(_name(names, sight.labels[i]), 14))
        items.append(el("li", square, *(el("span", word) for word in words)))
    return el("ol", *items, class_="crops")


def legend(palette: Mapping[int, Colour], names: Sequence[str] | None) -> Html:
    """What the colours of patches mean."""
    items = []
    for label, colour in palette.items():
        square = el("rect", width=10, height=10, rx=2, fill=to_hex(colour))
        key = el("svg", square, view_box="0 0 10 10", aria_hidden="true", class_="key")
        items.append(el("li", key, _name(names, label)))
    return el("ul", *items, class_="legend")


def _colours(sight: Sight, palette: Mapping[int, Colour]) -> list[str]:
    if sight.labels is None:
        return [to_hex(_MAP(share)) for share in relative(sight.attention).tolist()]
    return [to_hex(palette.get(label, palette.get(-1, (0, 0, 0)))) for label in sight.labels]


def _name(names: Sequence[str] | None, label: int) -> str:
    if label < 0:
        return "other"
    return str(label) if names is None else names[label]


def _chip(x: float, y: float, word: str, colour: str, unit: float) -> Html:
    """A number on a ground of its colour, dark or white, whichever can be read on it."""
    r, g, b = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    ink = "#111" if 0.299 * r + 0.587 * g + 0.114 * b > 140 else "#fff"
    ground = el(
        "rect", x=x - 7 * unit, y=y - 7.5 * unit, width=14 * unit, height=15 * unit, rx=3 * unit,
        fill=colour,
    )  # fmt: skip
    text = el(
        "text", word, x=x, y=y + 4 * unit, text_anchor="middle", font_size=11 * unit, fill=ink,
        class_="chip",
    )  # fmt: skip
    return el("g", ground, text)
