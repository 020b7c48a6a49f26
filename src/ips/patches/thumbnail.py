"""Thumbnails: a small picture of a whole image, in memory that does not grow with the image.

Letters: N patches of an image, C channels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, floor
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from PIL import Image as PILImage

from ips.images import Image
from ips.images.colour import as_rgb

if TYPE_CHECKING:
    from ips.patches.source import PatchSource

Pixels = npt.NDArray[np.uint8]
Reader = Callable[[int, int, int, int], Pixels]  # x, y, width, height -> (height, width, C)

# Pixels in memory at a time: 48 MB in colour.
BLOCK = 16 * 2**20

# Grey values where there is no patch, where there is a patch without pixels, and around those.
_PAPER, _FOOTPRINT, _OUTLINE = 248, 222, 120


@dataclass(frozen=True)
class Thumbnail:
    """A reduced picture of an image.

    Attributes:
        pixels: ``(h, w, 3)`` uint8.
        scale: thumbnail pixels per full-resolution pixel.
        offset: x, y of the top-left corner in full-resolution pixels.
    """

    pixels: Pixels
    scale: float
    offset: tuple[float, float]


def shrink_image(image: Image, side: int) -> Thumbnail:
    """Reduce the scanned region of ``image`` to a longer side of at most ``side`` pixels.

    The coarsest level that is fine enough is read, block by block; nothing is enlarged.
    """
    left, top, width, height = image.bounds
    scale = min(1.0, side / max(width, height))
    level = image.get_best_level_for_downsample(1 / scale)
    step = image.level_downsamples[level]

    def read(x: int, y: int, w: int, h: int) -> Pixels:
        return image.read_region((round(x * step), round(y * step)), level, (w, h))

    box = left / step, top / step, width / step, height / step
    return Thumbnail(shrink(read, box, _size(width, height, scale)), scale, (left, top))


def shrink_region(read: Reader, width: int, height: int, side: int) -> Thumbnail:
    """Reduce an image of ``width`` x ``height`` pixels that ``read`` returns region by region."""
    scale = min(1.0, side / max(width, height))
    pixels = shrink(read, (0, 0, width, height), _size(width, height, scale))
    return Thumbnail(pixels, scale, (0, 0))


def shrink(read: Reader, box: tuple[float, float, float, float], size: tuple[int, int]) -> Pixels:
    """Average ``box`` (left, top, width, height) down to ``size``, one block at a time."""
    (left, top, width, height), (w, h) = box, size
    fx, fy = width / w, height / h
    # Blocks are as wide as possible, because striped files store whole rows.
    columns = min(w, max(1, int(BLOCK / (fx * fy))))
    rows = min(h, max(1, int(BLOCK / (fx * fy * columns))))
    out = np.empty((h, w, 3), dtype=np.uint8)
    for y in range(0, h, rows):
        for x in range(0, w, columns):
            right, bottom = min(x + columns, w), min(y + rows, h)
            x0, x1 = left + x * fx, left + right * fx
            y0, y1 = top + y * fy, top + bottom * fy
            u, v = floor(x0), floor(y0)
            pixels = read(u, v, max(1, ceil(x1 - 1e-6) - u), max(1, ceil(y1 - 1e-6) - v))
            limit_y, limit_x = pixels.shape[:2]
            inner = x0 - u, y0 - v, min(x1 - u, limit_x), min(y1 - v, limit_y)
            out[y:bottom, x:right] = resize(pixels, (right - x, bottom - y), inner)
    return out


def paste_patches(source: PatchSource, side: int, *, extent: float) -> Thumbnail:
    """Paste all patches where they belong, reduced; overlapping patches are averaged.

    Pixels are never enlarged. Features have no pixels: they give a light canvas with the outline of
    all patches, which is that of the tissue if only tissue was extracted.

    Args:
        source: patches to paste.
        side: longer side of the thumbnail in pixels.
        extent: side of a patch in full-resolution pixels.
    """
    coords, pixels = source.coords, len(source.shape) == 3
    low = coords.min(axis=0)  # (2,)
    span = coords.max(axis=0) + extent - low  # (2,) width, height
    scale = side / float(span.max())
    if pixels:
        scale = min(1.0, scale)
    # A single row of patches would be one pixel high, so it gets margins.
    margin = np.maximum(span.max() / 10 - span, 0) / 2
    origin = low - margin
    width, height = (span + 2 * margin).tolist()
    w, h = _size(width, height, scale)

    start = np.rint((coords - origin) * scale).astype(np.int64)  # (N, 2)
    start = np.minimum(start, (w - 1, h - 1))
    stop = np.rint((coords + extent - origin) * scale).astype(np.int64)
    stop = np.clip(stop, start + 1, (w, h))
    total = np.zeros((h, w, 3), dtype=np.float32)
    count = np.zeros((h, w, 1), dtype=np.float32)
    step = max(1, BLOCK // (16 * int(np.prod(source.shape)))) if pixels else len(source)
    for first in range(0, len(source), step):
        block = range(first, min(first + step, len(source)))
        patches = source.read(block).cpu().numpy() if pixels else None  # (k, C, h, w)
        for i in block:
            (x0, y0), (x1, y1) = start[i].tolist(), stop[i].tolist()
            count[y0:y1, x0:x1] += 1
            if patches is None:
                total[y0:y1, x0:x1] += _FOOTPRINT
            else:
                patch = patches[i - first].transpose(1, 2, 0)
                total[y0:y1, x0:x1] += resize(patch, (x1 - x0, y1 - y0))
    mean = total / np.maximum(count, 1)
    covered = count > 0  # (h, w, 1)
    picture = np.where(covered, np.rint(mean), _PAPER).astype(np.uint8)
    if not pixels:
        picture[_rim(covered[..., 0])] = _OUTLINE
    return Thumbnail(picture, scale, (float(origin[0]), float(origin[1])))


def _rim(inside: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """The pixels ``(h, w)`` that are inside, and whose neighbour above, below or beside is not."""
    padded = np.pad(inside, 1)
    neighbours = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    return inside & ~neighbours


def resize(
    pixels: Pixels, size: tuple[int, int], box: tuple[float, float, float, float] | None = None
) -> Pixels:
    """Average ``(h, w, C)`` pixels, or the ``box`` of them, down to ``size`` in RGB."""
    picture = PILImage.fromarray(as_rgb(pixels))
    return np.asarray(picture.resize(size, PILImage.Resampling.BOX, box=box))


def _size(width: float, height: float, scale: float) -> tuple[int, int]:
    return max(1, round(width * scale)), max(1, round(height * scale))
