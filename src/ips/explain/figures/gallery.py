"""Figure: the patches of a whole data set with the highest attention.

Letters: K selected patches of an image, C channels. Lengths on the page are in pixels.
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
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from torch import Tensor

from ips.errors import PatchError
from ips.explain.colours import MUTED, RULE, rgb
from ips.explain.figures.page import DPI, Page, title_block
from ips.patches import Indices, PatchSource
from ips.patches.thumbnail import Pixels, resize

_LINE = 1334  # twelve patches of 100 px, each in a frame
_GAP, _MARGIN = 10, 45
_LARGEST, _SMALLEST = 210, 16
_CAPTIONED = 80  # smallest side of a patch with a caption
_CAPTION, _NARROW = 38, 4  # height of a caption, width below that of any character
_NAME = FontProperties(size=6.5)


@dataclass(frozen=True)
class PatchLocation:
    """Where a patch is, and its attention.

    Attributes:
        name: name of the image.
        number: number of the image in its data set.
        index: index of the patch in the image.
        attention: attention of the patch.
    """

    name: str
    number: int
    index: int
    attention: float


@dataclass(frozen=True, eq=False)
class PatchCrop:
    """The pixels ``(C, h, w)`` of a patch, uint8; for the rest see `PatchLocation`."""

    pixels: Pixels
    name: str
    index: int
    attention: float


class TopPatches:
    """Collects the patches with the highest attention from images that are added one by one.

    Memory does not grow with the number of images, and their order does not matter: patches of
    equal attention are sorted by image number, then by index.

    Args:
        count: number of patches to collect.
        per_image: largest number of patches of one image; unlimited by default, as in the paper.
    """

    def __init__(self, count: int, *, per_image: int | None = None) -> None:
        if count < 1 or (per_image is not None and per_image < 1):
            raise ValueError(f"count={count}, per_image={per_image}: expected 1 or more")
        self._count = count
        self._per_image = count if per_image is None else min(count, per_image)
        self._heap: list[tuple[float, int, int, str]] = []  # lowest attention first

    def add(
        self, name: str, number: int, *, indices: Indices, attention: Sequence[float] | Tensor
    ) -> None:
        """Add the patches of an image, each image once.

        Args:
            name: name of the image.
            number: number of the image in its data set.
            indices: ``(K,)`` indices of the patches, without padding.
            attention: ``(K,)`` attention of the patches.
        """
        where = torch.as_tensor(indices).cpu().numpy()
        values = torch.as_tensor(attention).detach().double().cpu().numpy()
        if where.shape != values.shape or where.ndim != 1:
            raise ValueError(f"{name}: {where.shape} indices, {values.shape} attention")
        known = ~np.isnan(values)
        where, values = where[known], values[known]
        for i in np.lexsort((where, -values))[: self._per_image].tolist():
            entry = float(values[i]), -number, -int(where[i]), name
            if len(self._heap) < self._count:
                heappush(self._heap, entry)
            elif entry > self._heap[0]:
                heapreplace(self._heap, entry)
            else:
                break  # the rest is lower still

    @property
    def locations(self) -> list[PatchLocation]:
        """The collected patches, highest attention first."""
        ranked = sorted(self._heap, reverse=True)
        return [PatchLocation(name, -number, -index, a) for a, number, index, name in ranked]


def read_crops(
    locations: Sequence[PatchLocation], *, source: Callable[[int], PatchSource]
) -> list[PatchCrop]:
    """Read the pixels of patches, in the given order; each image is opened once.

    Args:
        locations: see `TopPatches`.
        source: function that gives the patches of an image by its number.
    """
    pixels: dict[PatchLocation, Pixels] = {}
    for number in sorted({location.number for location in locations}):
        here = [location for location in locations if location.number == number]
        opened = source(number)
        if len(opened.shape) != 3:
            raise PatchError(f"{opened.name}: holds features, not pixels: use the image itself")
        read = opened.read([location.index for location in here]).cpu().numpy()
        pixels.update(zip(here, read, strict=True))
        opened.close()
    return [PatchCrop(pixels[p], p.name, p.index, p.attention) for p in locations]


def draw_gallery(
    path: Path, *, patches: Sequence[PatchCrop], title: str, columns: int = 12
) -> None:
    """Draw a PNG of patches with attention decreasing from left to right and top to bottom.

    A caption has the attention and the name of the image, if the patches are wide enough for it.

    Args:
        path: PNG to write.
        patches: patches in any order.
        title: title of the figure.
        columns: number of patches in a row.
    """
    side = min(_LARGEST, (_LINE + _GAP) // max(columns, 1) - _GAP)
    if columns < 1 or side < _SMALLEST:
        most = (_LINE + _GAP) // (_SMALLEST + _GAP)
        raise ValueError(f"columns={columns}: expected 1 to {most}")
    if not patches:
        raise PatchError(f"{path}: there are no patches to show: give at least one")
    ranked = sorted(patches, key=lambda patch: patch.attention, reverse=True)
    captioned = side >= _CAPTIONED
    pitch = side + _GAP, side + _GAP + captioned * _CAPTION
    rows = ceil(len(ranked) / columns)
    header = title_block(title, _LINE / DPI)
    body = 55 + round(header.height * DPI)
    below = body + rows * pitch[1]
    page = Page((_LINE + 2 * _MARGIN) / DPI, (below + 60) / DPI)
    page.write(_MARGIN / DPI, 30 / DPI, header)

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
        note += " Per cent: share of the attention in the image, which is named below."
    page.write(_MARGIN / DPI, (below + 12) / DPI, note, size=8, color=MUTED)
    page.save(path)


def short_name(name: str, length: int) -> str:
    """The end of a path that fits; a file name that is too long is cut in the middle.

    >>> short_name("data/test/street_0017.jpg", 18)
    'street_0017.jpg'
    >>> short_name("street_0017.jpg", 9)
    'stre….jpg'
    """
    while len(name) > length and "/" in name:
        name = name.partition("/")[2]
    if len(name) <= length:
        return name
    half = (length - 1) // 2
    return f"{name[: length - 1 - half]}…{name[len(name) - half :]}"


def _fitted(name: str, width: int) -> str:
    """The longest short name whose rendered text fits into ``width``."""
    for length in range(min(len(name), width // _NARROW), 1, -1):
        short = short_name(name, length)
        points, _, _ = text_to_path.get_text_width_height_descent(short, _NAME, ismath=False)
        if points * DPI / 72 <= width:
            return short
    return name[:1]


def _framed(pixels: Pixels, side: int) -> npt.NDArray[np.uint8]:
    """A patch as a square of ``side`` pixels, in a thin frame that is visible on white."""
    square = np.empty((side, side, 3), dtype=np.uint8)
    square[:] = np.rint(255 * np.array(rgb(RULE)))
    square[1:-1, 1:-1] = resize(pixels.transpose(1, 2, 0), (side - 2, side - 2))
    return square
