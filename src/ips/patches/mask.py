"""A black-and-white copy of an image at a low resolution: which parts of it count.

It is stored in compressed blocks, so that neither a mask nor its use needs much memory. Letters:
N patches of an image, R rows and C columns of their grid, n squares.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image as PILImage
from PIL import ImageDraw

from ips.annotations import Outline
from ips.errors import PatchError
from ips.images import Image, open_image
from ips.patches.image import ImagePatches
from ips.patches.source import Box, Coords

Bools = npt.NDArray[np.bool_]

#: Pixels of a block.
BLOCK = 2**21

_ACROSS = 16  # pixels of a mask across a patch, unless the mask has its own resolution
_SAME_SHAPE = 0.02  # relative difference of two aspect ratios


@dataclass(frozen=True)
class Mask:
    """Which pixels of a coarse copy of an image count.

    Attributes:
        step: full-resolution pixels per pixel of the mask.
        size: width and height.
        blocks: left, top, width and height of each block, and its compressed pixels.
    """

    step: float
    size: tuple[int, int]
    blocks: tuple[tuple[Box, bytes], ...]

    @classmethod
    def of(cls, step: float, size: tuple[int, int], parts: Iterable[tuple[Box, Bools]]) -> Mask:
        """A mask of these parts, which need not cover the whole image."""
        blocks = [(box, zlib.compress(np.packbits(part).tobytes(), 1)) for box, part in parts]
        return cls(step, size, tuple(blocks))

    def parts(self) -> Iterator[tuple[Box, Bools]]:
        """Each block with its pixels ``(h, w)``."""
        for box, data in self.blocks:
            _, _, w, h = box
            bits = np.frombuffer(zlib.decompress(data), np.uint8)
            yield box, np.unpackbits(bits, count=w * h).reshape(h, w).astype(bool)

    def shares(self, patches: ImagePatches) -> npt.NDArray[np.float64]:
        """The share of each patch of a grid that counts, ``(N,)``.

        The patches are the crossings of the rows and columns of a grid, so a summed-area table of a
        block gives the pixels of every patch that overlaps the block.
        """
        extent = patches.patch_size * patches.downsample
        rows, columns = patches.grid.shape
        x, y = patches.coords[:columns, 0], patches.coords[::columns, 1]
        left, right = self._pixels(x), self._pixels(x + extent)  # (C,)
        top, bottom = self._pixels(y), self._pixels(y + extent)  # (R,)
        counts = np.zeros((rows, columns), np.int64)
        for (u, v, w, h), part in self.parts():
            c = np.flatnonzero((left < u + w) & (right > u))
            r = np.flatnonzero((top < v + h) & (bottom > v))
            if not (len(c) and len(r) and part.any()):
                continue
            sums = np.zeros((h + 1, w + 1), np.int32)
            np.cumsum(part, axis=0, out=sums[1:, 1:])
            np.cumsum(sums, axis=1, out=sums)
            x0, x1 = (np.clip(edge[c] - u, 0, w) for edge in (left, right))
            y0, y1 = (np.clip(edge[r] - v, 0, h) for edge in (top, bottom))
            inside = sums[np.ix_(y1, x1)] - sums[np.ix_(y0, x1)]
            inside += sums[np.ix_(y0, x0)] - sums[np.ix_(y1, x0)]
            counts[np.ix_(r, c)] += inside
        area = np.maximum(np.outer(bottom - top, right - left), 1)
        return (counts / area).reshape(-1)

    def without(self, corners: Coords, extent: float) -> Mask:
        """The mask without squares at ``corners`` ``(n, 2)`` in full-resolution pixels."""
        parts = ((box, part & ~self._squares(box, corners, extent)) for box, part in self.parts())
        return Mask.of(self.step, self.size, parts)

    def _squares(self, box: Box, corners: Coords, extent: float) -> Bools:
        """Which pixels ``(h, w)`` of a block are inside a square."""
        u, v, w, h = box
        x0, x1 = (np.clip(self._pixels(corners[:, 0] + side) - u, 0, w) for side in (0, extent))
        y0, y1 = (np.clip(self._pixels(corners[:, 1] + side) - v, 0, h) for side in (0, extent))
        marks = np.zeros((h + 1, w + 1), np.int32)  # summed along both axes: squares over a pixel
        for y, x, change in ((y0, x0, 1), (y0, x1, -1), (y1, x0, -1), (y1, x1, 1)):
            np.add.at(marks, (y, x), change)
        inside: Bools = marks.cumsum(axis=0).cumsum(axis=1)[:h, :w] > 0
        return inside

    def _pixels(self, edges: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """The edges in pixels of the mask."""
        return np.rint(np.asarray(edges) / self.step).astype(np.int64)


def mask_of_squares(image: Image, corners: Coords, extent: float) -> Mask:
    """The squares at ``corners`` ``(n, 2)`` in full-resolution pixels."""
    empty = _empty(image, extent)
    return _filled(empty, lambda box: empty._squares(box, corners, extent))


def mask_of_outlines(image: Image, outlines: Sequence[Outline], extent: float) -> Mask:
    """The inside of polygons without their holes, for patches of side ``extent``."""
    empty = _empty(image, extent)
    polygons = [
        [np.asarray(line) / empty.step for line in outline.lines]
        for outline in outlines
        if outline.kind == "polygon" and len(outline.lines[0]) > 2
    ]

    def draw(box: Box) -> Bools:
        u, v, w, h = box
        inside = np.zeros((h, w), bool)
        for boundary, *holes in polygons:
            low, high = boundary.min(axis=0), boundary.max(axis=0)
            x0, y0 = np.clip(np.floor(low - (u, v)), 0, (w, h)).astype(int).tolist()
            x1, y1 = np.clip(np.ceil(high - (u, v)) + 1, 0, (w, h)).astype(int).tolist()
            if x0 >= x1 or y0 >= y1:
                continue
            picture = PILImage.new("1", (x1 - x0, y1 - y0))
            pen = ImageDraw.Draw(picture)
            for line, fill in ((boundary, 1), *((hole, 0) for hole in holes)):
                if len(line) > 2:
                    # a pixel is inside if its centre is
                    pen.polygon([(x - u - x0 - 0.5, y - v - y0 - 0.5) for x, y in line], fill=fill)
            inside[y0:y1, x0:x1] |= np.asarray(picture)
        return inside

    return _filled(empty, draw)


def mask_of_picture(image: Image, path: Path) -> Mask:
    """A stored picture of the whole image: what is not black counts."""
    with open_image(path) as picture:
        (w, h), (width, height) = picture.dimensions, image.dimensions
        if abs(w * height / (h * width) - 1) > _SAME_SHAPE:
            raise PatchError(
                f"{path}: a mask of {w} x {h} px does not have the shape of {image.name}, which "
                f"has {width} x {height}: give the mask of this image"
            )

        def read(box: Box) -> Bools:
            u, v, across, down = box
            marked: Bools = picture.read_region((u, v), 0, (across, down)).max(axis=-1) > 0
            return marked

        return _filled(Mask((width / w + height / h) / 2, (w, h), ()), read)


def divided(size: tuple[int, int]) -> Iterator[Box]:
    """Blocks that cover a mask."""
    width, height = size
    w = min(width, 8192)
    h = max(1, BLOCK // w)
    for y in range(0, height, h):
        for x in range(0, width, w):
            yield x, y, min(w, width - x), min(h, height - y)


def _empty(image: Image, extent: float) -> Mask:
    """A mask without blocks, of a resolution that suits patches of this side.

    It is a patch wider and higher than the image, for patches across its border.
    """
    step = max(extent / _ACROSS, 1.0)
    width, height = (int((side + extent) / step) + 1 for side in image.dimensions)
    return Mask(step, (width, height), ())


def _filled(empty: Mask, draw: Callable[[Box], Bools]) -> Mask:
    return Mask.of(empty.step, empty.size, ((box, draw(box)) for box in divided(empty.size)))
