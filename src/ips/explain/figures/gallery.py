"""Figure: the patches of a whole data set with the highest attention.

Letters: K selected patches of an image, C channels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path

import torch
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from torch import Tensor

from ips.errors import PatchError
from ips.explain.figures.drawing import PLACE_SIZE, draw_grid
from ips.explain.spread import spread
from ips.patches import Indices, PatchSource
from ips.patches.thumbnail import Pixels

_SIDE, _COLUMNS = 2 / 3, 12  # side of a patch in inches
_NAME = FontProperties(size=PLACE_SIZE)
_NOTE = (
    "Attention decreases from left to right, then from top to bottom. Per cent: share of the "
    "attention to the selected patches of the image, which is named below. "
)


@dataclass(frozen=True)
class TopPatch:
    """A patch of an image of a data set: ``number`` is that of the image, ``index`` its own.

    ``selected`` is K, the number of selected patches of its image.
    """

    name: str
    number: int
    index: int
    attention: float
    selected: int


class TopPatches:
    """Collects the patches with the highest attention from images that are added one by one.

    Memory does not grow with the number of images, and their order does not matter: patches of
    equal attention are sorted by image number, then by index.

    Args:
        count: number of patches to collect.

    Attributes:
        patches: the collected patches, highest attention first.
        images: number of images.
        uniform: number of images whose attention is nearly uniform over the selected patches.
    """

    def __init__(self, count: int) -> None:
        if count < 1:
            raise ValueError(f"count={count}: expected 1 or more")
        self._count = count
        self.patches: list[TopPatch] = []
        self.images = self.uniform = 0

    def add(
        self, name: str, number: int, *, indices: Indices, attention: Sequence[float] | Tensor
    ) -> None:
        """Add the patches of an image, each image once; NaN attention is ignored.

        Args:
            name: name of the image.
            number: number of the image in its data set.
            indices: ``(K,)`` indices of the patches, without padding.
            attention: ``(K,)`` attention of the patches.
        """
        where = torch.as_tensor(indices)
        values = torch.as_tensor(attention).detach().cpu().double()
        if where.shape != values.shape or where.ndim != 1:
            raise ValueError(f"{name}: {where.shape} indices, {values.shape} attention")
        pairs = zip(where.tolist(), values.tolist(), strict=True)
        added = [TopPatch(name, number, i, a, len(where)) for i, a in pairs if not isnan(a)]
        self.images += 1
        self.uniform += spread(values.cpu().numpy()).uniform
        ranked = sorted(self.patches + added, key=lambda p: (-p.attention, p.number, p.index))
        self.patches = ranked[: self._count]


def read_pixels(
    patches: Sequence[TopPatch], *, source: Callable[[int], PatchSource]
) -> list[Pixels]:
    """Read the pixels ``(C, h, w)`` of patches; ``source`` opens an image, once, by its number."""
    pixels: dict[TopPatch, Pixels] = {}
    for number in sorted({patch.number for patch in patches}):
        here = [patch for patch in patches if patch.number == number]
        with source(number) as opened:
            if len(opened.shape) != 3:
                raise PatchError(f"{opened.name}: holds features, not pixels: use the image itself")
            read = opened.read([patch.index for patch in here]).cpu().numpy()
        pixels.update(zip(here, read, strict=True))
    return [pixels[patch] for patch in patches]


def draw_gallery(
    path: Path, patches: Sequence[TopPatch], *, pixels: Sequence[Pixels], title: str
) -> None:
    """Draw a PNG of patches by descending attention, given with their ``(C, h, w)`` pixels."""
    if not patches:
        raise PatchError(f"{path}: there are no patches to show: give at least one")
    captions = [[f"{100 * patch.attention:.1f} %", _fitted(patch.name)] for patch in patches]
    draw_grid(
        path,
        patches=pixels,
        captions=captions,
        side=_SIDE,
        columns=_COLUMNS,
        title=title,
        note=_NOTE + _even_share(patches),
    )


def _even_share(patches: Sequence[TopPatch]) -> str:
    fewest, most = (f(patch.selected for patch in patches) for f in (min, max))
    share = f"{100 / most:.2g} %"
    if fewest != most:
        share += f" to {100 / fewest:.2g} %"
    return f"An even share would be {share}."


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


def _fitted(name: str) -> str:
    """The longest short name that is not wider than a patch."""
    for length in range(min(len(name), 25), 1, -1):  # more characters never fit
        short = short_name(name, length)
        points, _, _ = text_to_path.get_text_width_height_descent(short, _NAME, ismath=False)
        if points / 72 <= _SIDE:
            return short
    return name[:1]
