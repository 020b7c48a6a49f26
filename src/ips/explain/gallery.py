"""The patches with the highest attention of a whole data set: collected, read and drawn.

Letters: K patches kept of an image, C channels. Lengths on the page are in pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappush, heapreplace
from math import ceil
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from matplotlib.colors import to_rgb
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from torch import Tensor

from ips.errors import PatchError
from ips.explain.page import DPI, MUTED, RULE, Page, wrapped
from ips.patches import Indices, PatchSource
from ips.patches.thumbnail import Pixels, resize

_LINE = 1334  # twelve patches of 100 px, each in a frame
_GAP, _MARGIN = 10, 45
_LARGEST, _SMALLEST = 210, 16
_CAPTIONED = 80  # a caption below a narrower patch could not be read
_CAPTION, _NARROW = 38, 4  # the height of a caption, the width of no letter
_NAME = FontProperties(size=6.5)


@dataclass(frozen=True)
class HighPlace:
    """Where a patch with high attention is.

    Attributes:
        name: of the image.
        number: of the image in its data set.
        index: of the patch in the image's own numbering.
        attention: that it got.
    """

    name: str
    number: int
    index: int
    attention: float


@dataclass(frozen=True, eq=False)
class HighPatch:
    """A patch to show: ``pixels`` ``(C, h, w)`` uint8, and whose they are (see `HighPlace`)."""

    pixels: Pixels
    name: str
    index: int
    attention: float

    def __post_init__(self) -> None:
        if self.pixels.ndim != 3:
            raise PatchError(
                f"{self.name}: its patches are features of shape {self.pixels.shape}, so there are "
                "no pixels to show; give the patches of the image itself"
            )


class Highest:
    """The patches with the highest attention of all images, which come one by one.

    Memory does not grow with the images, and their order does not matter: of equal attention, the
    patch of the lower image number goes first, then that of the lower patch number.

    Args:
        count: how many patches to keep.
        per_image: how many of them may be of one image; any number by default, as in the paper.
    """

    def __init__(self, count: int, *, per_image: int | None = None) -> None:
        if count < 1 or (per_image is not None and per_image < 1):
            raise ValueError(f"count={count}, per_image={per_image}: expected 1 or more")
        self._count = count
        self._per_image = count if per_image is None else min(count, per_image)
        self._heap: list[tuple[float, int, int, str]] = []  # the lowest first

    def add(
        self, name: str, number: int, *, indices: Indices, attention: Sequence[float] | Tensor
    ) -> None:
        """Take the patches of an image that are among the highest so far.

        Args:
            name: of the image.
            number: of the image in its data set; an image is added once.
            indices: ``(K,)`` patch numbers, without padding.
            attention: ``(K,)``.
        """
        where = torch.as_tensor(indices).cpu().numpy()
        values = torch.as_tensor(attention).detach().double().cpu().numpy()
        if where.shape != values.shape or where.ndim != 1:
            raise ValueError(f"{name}: {where.shape} patch numbers, {values.shape} attention")
        known = ~np.isnan(values)
        where, values = where[known], values[known]
        for i in np.lexsort((where, -values))[: self._per_image].tolist():
            entry = float(values[i]), -number, -int(where[i]), name
            if len(self._heap) < self._count:
                heappush(self._heap, entry)
            elif entry > self._heap[0]:
                heapreplace(self._heap, entry)
            else:
                break  # what follows is lower still

    @property
    def places(self) -> list[HighPlace]:
        """Where they are, the highest first."""
        ranked = sorted(self._heap, reverse=True)
        return [HighPlace(name, -number, -index, a) for a, number, index, name in ranked]


def read_highest(
    places: Sequence[HighPlace], *, source: Callable[[int], PatchSource]
) -> list[HighPatch]:
    """The pixels at these places, in their order; an image is opened once, for those alone.

    Args:
        places: see `Highest`.
        source: gives the patches of the image of a number.
    """
    pixels: dict[HighPlace, Pixels] = {}
    for number in sorted({place.number for place in places}):
        here = [place for place in places if place.number == number]
        opened = source(number)
        read = opened.read([place.index for place in here]).cpu().numpy()
        pixels.update(zip(here, read, strict=True))
        opened.close()
    return [HighPatch(pixels[p], p.name, p.index, p.attention) for p in places]


def draw_gallery(
    path: Path, *, patches: Sequence[HighPatch], title: str, columns: int = 12
) -> None:
    """One PNG of patches, attention decreasing from left to right, then from top to bottom.

    Below each are its attention and its image, if there is room for words that can be read.

    Args:
        path: of the PNG.
        patches: in any order.
        title: what to write above.
        columns: patches in a row.
    """
    side = min(_LARGEST, (_LINE + _GAP) // max(columns, 1) - _GAP)
    if columns < 1 or side < _SMALLEST:
        most = (_LINE + _GAP) // (_SMALLEST + _GAP)
        raise ValueError(f"columns={columns}: expected 1 to {most}")
    if not patches:
        raise PatchError(f"{path}: there is no patch to show, give at least one")
    ranked = sorted(patches, key=lambda patch: patch.attention, reverse=True)
    captioned = side >= _CAPTIONED
    pitch = side + _GAP, side + _GAP + captioned * _CAPTION
    rows = ceil(len(ranked) / columns)
    header = wrapped(title, int(_LINE / DPI * 12.5))
    body = 55 + 30 * (header.count("\n") + 1)
    below = body + rows * pitch[1]
    page = Page((_LINE + 2 * _MARGIN) / DPI, (below + 60) / DPI)
    page.write(_MARGIN / DPI, 30 / DPI, header, size=10, weight="bold", linespacing=1.3)

    wall = np.full((rows * pitch[1], _LINE, 3), 255, dtype=np.uint8)
    for i, patch in enumerate(ranked):
        x, y = i % columns * pitch[0], i // columns * pitch[1]
        wall[y : y + side, x : x + side] = _framed(patch.pixels, side)
        if captioned:
            left, top = (_MARGIN + x) / DPI, (body + y + side) / DPI
            share = f"{100 * patch.attention:.1f} %"
            name = _fitted(patch.name, side)
            page.write(left, top + 0.035, share, size=7.5)
            page.write(left, top + 0.15, name, fontproperties=_NAME, color=MUTED)
    axes = page.axes(_MARGIN / DPI, body / DPI, _LINE / DPI, len(wall) / DPI)
    axes.imshow(wall, interpolation="nearest", aspect="auto")
    axes.set_axis_off()
    note = "Attention decreases from left to right, then from top to bottom."
    if captioned:
        note += " Per cent: the part of the attention in its image, whose name is below."
    page.write(_MARGIN / DPI, (below + 12) / DPI, note, size=8, color=MUTED)
    page.save(path)


def short_name(name: str, letters: int) -> str:
    """As much of the end of a path as fits; of a longer file name, its start and its end.

    >>> short_name("data/test/street_0017.jpg", 18)
    'street_0017.jpg'
    >>> short_name("street_0017.jpg", 9)
    'stre….jpg'
    """
    while len(name) > letters and "/" in name:
        name = name.partition("/")[2]
    if len(name) <= letters:
        return name
    half = (letters - 1) // 2
    return f"{name[: letters - 1 - half]}…{name[len(name) - half :]}"


def _fitted(name: str, width: int) -> str:
    """As much of a name as a caption has room for: letters differ in width."""
    for letters in range(min(len(name), width // _NARROW), 1, -1):
        short = short_name(name, letters)
        points, _, _ = text_to_path.get_text_width_height_descent(short, _NAME, ismath=False)
        if points * DPI / 72 <= width:
            return short
    return name[:1]


def _framed(pixels: Pixels, side: int) -> npt.NDArray[np.uint8]:
    """A patch as a square of ``side``, in a thin frame that parts a white one from the page."""
    square = np.empty((side, side, 3), dtype=np.uint8)
    square[:] = np.rint(255 * np.array(to_rgb(RULE)))
    square[1:-1, 1:-1] = resize(pixels.transpose(1, 2, 0), (side - 2, side - 2))
    return square
