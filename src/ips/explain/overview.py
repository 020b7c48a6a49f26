"""A small picture of the whole image behind a patch source, in memory that does not grow with it.

Letters: N patches of an image, K of them asked about, C channels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, floor

import numpy as np
import numpy.typing as npt
from PIL import Image as PILImage

from ips.data import ScenePatches
from ips.errors import PatchError
from ips.images import Image
from ips.patches import Coords, ImagePatches, PatchSource, PatchSubset

Pixels = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]
Reader = Callable[[int, int, int, int], Pixels]  # x, y, width, height -> (height, width, C)

# Pixels held at a time: 48 MB in colour.
BLOCK = 16 * 2**20

# Where nothing is known of the image, and where a patch without pixels lies.
_PAPER, _FOOTPRINT = 248, 222


@dataclass(frozen=True)
class Overview:
    """A whole image, reduced.

    Attributes:
        pixels: ``(h, w, 3)`` uint8.
        scale: overview pixels per full-resolution pixel.
        offset: x, y of its top-left corner in full-resolution pixels.
    """

    pixels: Pixels
    scale: float
    offset: tuple[float, float]


def overview(source: PatchSource, *, side: int = 800) -> Overview:
    """The image behind ``source``, its longer side at most ``side`` pixels; never enlarged.

    An image file is read from the coarsest level that is fine enough, block by block where that
    is still large. Any other source is put together from its patches. Features have no pixels:
    they give a light canvas that shows where the patches are.
    """
    while isinstance(source, PatchSubset):
        source = source.source  # some patches of an image: the image is the same
    if isinstance(source, ImagePatches):
        return _of_image(source.image, side)
    if isinstance(source, ScenePatches):
        return _of_scene(source, side)
    return _of_patches(source, side)


def boxes(view: Overview, coords: Coords, *, extent: float, smallest: float = 0.0) -> Floats:
    """Left, top, width and height ``(K, 4)`` of patches in pixels of the overview.

    Args:
        view: the overview.
        coords: ``(K, 2)`` corners in full-resolution pixels.
        extent: side of a patch in full-resolution pixels.
        smallest: a box below this is widened about its centre, or nobody would see a patch of a
            slide of 100,000 px.
    """
    side = max(extent * view.scale, smallest)
    centre = (coords + extent / 2 - np.array(view.offset)) * view.scale  # (K, 2)
    return np.concatenate([centre - side / 2, np.full_like(centre, side)], axis=1)  # (K, 4)


def label_spots(marks: Floats, *, size: tuple[float, float], area: tuple[int, int]) -> Floats:
    """Centres ``(k, 2)`` for numbers beside boxes ``(k, 4)``, clear of each other if they can be.

    Args:
        marks: left, top, width and height of each box.
        size: width and height of a number.
        area: width and height of the picture, which a number should not leave.
    """
    half = np.array(size) / 2
    spots = np.empty((len(marks), 2))
    for i, (left, top, w, h) in enumerate(marks.tolist()):
        across = left + half[0], left + w / 2, left + w - half[0]
        upright = top + half[1], top + h / 2, top + h - half[1]
        outside = [(x, y) for y in (top - half[1], top + h + half[1]) for x in across]
        outside += [(x, y) for x in (left - half[0], left + w + half[0]) for y in upright]
        tries = np.array(outside)  # (12, 2)
        taken = _shared(tries, half, spots[:i] - half, spots[:i] + half)
        covers = _shared(tries, half, marks[:, :2], marks[:, :2] + marks[:, 2:])
        inside = _shared(tries, half, np.zeros((1, 2)), np.array([area], dtype=float))
        spots[i] = tries[np.argmin(20 * taken + covers - 10 * inside)]
    return spots


def _shared(centres: Floats, half: Floats, low: Floats, high: Floats) -> Floats:
    """Area that rectangles about ``centres`` share with those from ``low`` to ``high``, in all."""
    start = np.maximum(centres[:, None] - half, low[None])  # (tries, boxes, 2)
    stop = np.minimum(centres[:, None] + half, high[None])
    area: Floats = np.maximum(stop - start, 0).prod(axis=2).sum(axis=1)  # (tries,)
    return area


def patch_side(source: PatchSource) -> float:
    """Side of a patch in full-resolution pixels, or where unknown the smallest step between two."""
    if source.extent is not None:
        return source.extent
    steps = np.concatenate([np.diff(np.unique(axis)) for axis in source.coords.T])
    return float(steps.min()) if len(steps) else 1.0


def _of_image(image: Image, side: int) -> Overview:
    left, top, width, height = image.bounds
    scale = min(1.0, side / max(width, height))
    level = image.get_best_level_for_downsample(1 / scale)
    step = image.level_downsamples[level]

    def read(x: int, y: int, w: int, h: int) -> Pixels:
        return image.read_region((round(x * step), round(y * step)), level, (w, h))

    box = left / step, top / step, width / step, height / step
    pixels = _reduced(read, box=box, size=_size(width, height, scale))
    return Overview(pixels, scale, (left, top))


def _of_scene(scene: ScenePatches, side: int) -> Overview:
    width, height, c = scene.grid.width, scene.grid.height, scene.cells.shape[-1]
    scale = min(1.0, side / max(width, height))

    def read(x: int, y: int, w: int, h: int) -> Pixels:
        # A margin of one cell around the region, so that no cell has to be cut.
        canvas = np.zeros((h + 2 * c, w + 2 * c, 1), dtype=np.uint8)
        at = scene.places - (x, y) + c  # (n, 2)
        touching = ((at > 0) & (at < (w + c, h + c))).all(axis=1)
        for cell, (u, v) in zip(scene.cells[touching], at[touching].tolist(), strict=True):
            canvas[v : v + c, u : u + c, 0] = cell
        return canvas[c : c + h, c : c + w]

    pixels = _reduced(read, box=(0, 0, width, height), size=_size(width, height, scale))
    return Overview(pixels, scale, (0, 0))


def _reduced(
    read: Reader, *, box: tuple[float, float, float, float], size: tuple[int, int]
) -> Pixels:
    """A region brought down to ``size`` by averages, a block of it in memory at a time."""
    (left, top, width, height), (w, h) = box, size
    fx, fy = width / w, height / h
    # Blocks as wide as can be: files of strips are read across.
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
            out[y:bottom, x:right] = resized(pixels, (right - x, bottom - y), inner)
    return out


def _of_patches(source: PatchSource, side: int) -> Overview:
    """Patches pasted where they belong, reduced; the mean where they overlap."""
    if not len(source):
        raise PatchError(f"{source.name}: there is no patch in it to show")
    coords, extent, pixels = source.coords, patch_side(source), len(source.shape) == 3
    low = coords.min(axis=0)  # (2,)
    span = coords.max(axis=0) + extent - low  # (2,) width, height
    scale = side / float(span.max())
    if pixels:
        scale = min(1.0, scale)  # there is no sense in enlarging
    # Patches in one row would make a picture a pixel high: it gets margins.
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
                total[y0:y1, x0:x1] += resized(patch, (x1 - x0, y1 - y0))
    mean = total / np.maximum(count, 1)
    picture = np.where(count > 0, np.rint(mean), _PAPER).astype(np.uint8)
    return Overview(picture, scale, (float(origin[0]), float(origin[1])))


def _size(width: float, height: float, scale: float) -> tuple[int, int]:
    return max(1, round(width * scale)), max(1, round(height * scale))


def resized(
    pixels: Pixels, size: tuple[int, int], box: tuple[float, float, float, float] | None = None
) -> Pixels:
    """``(h, w, C)`` pixels, or the ``box`` of them, averaged down to ``size`` in RGB."""
    picture = PILImage.fromarray(rgb(pixels))
    return np.asarray(picture.resize(size, PILImage.Resampling.BOX, box=box))


def rgb(pixels: Pixels) -> Pixels:
    """``(h, w, C)`` pixels as ``(h, w, 3)``; of more than three channels the first three."""
    colour = pixels[..., :3] if pixels.shape[-1] >= 3 else np.repeat(pixels[..., :1], 3, axis=-1)
    return np.ascontiguousarray(colour)
