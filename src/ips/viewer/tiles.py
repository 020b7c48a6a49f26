"""Squares of an image, and of the attention over it, at any zoom.

At the largest zoom a tile's pixel is a pixel of the image, and each zoom below halves that; at 0
the whole image is in one tile.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from io import BytesIO
from math import ceil, log2
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from PIL import Image as PILImage

from ips.explain.maps import percentiles
from ips.images import Image, read_at

Pixels = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

TILE = 256
THUMBNAIL = 112
Colours = Literal["viridis", "magma", "turbo", "cividis"]
COLOURS: tuple[Colours, ...] = get_args(Colours)

# A level this close to a zoom is read as it is: over a tile it is off by half a pixel.
_NEAR = 0.002

# Side of the region that is read for a tile. Where the file has no level that is coarse enough, a
# tile is put together from the four of the zoom below it: memory stays, time grows with the area.
_REGION = 4096


@dataclass(frozen=True)
class Place:
    """Top-left corner of a tile, and the side of its pixels, in full-resolution pixels."""

    left: int
    top: int
    downsample: int


def zooms(image: Image) -> int:
    """The largest zoom."""
    return max(0, ceil(log2(max(image.dimensions) / TILE)))


def place(image: Image, zoom: int, column: int, row: int) -> Place | None:
    """Where a tile is, None where there is none."""
    if not 0 <= zoom <= zooms(image):
        return None
    downsample = 2 ** (zooms(image) - zoom)
    left, top = column * TILE * downsample, row * TILE * downsample
    width, height = image.dimensions
    inside = 0 <= left < width and 0 <= top < height
    return Place(left, top, downsample) if inside else None


def image_tile(image: Image, at: Place) -> bytes:
    """A tile as JPEG; at the right and bottom edge as PNG, transparent beyond the image."""
    pixels = _pixels(image, at)
    height, width = pixels.shape[:2]
    if (height, width) == (TILE, TILE):
        return _encoded(_picture(pixels), "JPEG")
    tile = PILImage.new("RGBA", (TILE, TILE))
    tile.paste(_picture(pixels).convert("RGBA"))
    return _encoded(tile, "PNG")


def thumbnail(image: Image, x: int, y: int, extent: int) -> bytes:
    """A patch as a small PNG, never enlarged."""
    side = min(extent, THUMBNAIL)
    pixels = read_at(image, (x, y), downsample=extent / side, size=(side, side))
    return _encoded(_picture(pixels), "PNG")


def colour_bar(colours: Colours) -> bytes:
    """A colour map from left to right, as PNG."""
    return _encoded(PILImage.fromarray(_table(colours)[None]), "PNG")


class AttentionTiles:
    """Maps of attention in percentiles, drawn tile by tile.

    A softmax over many patches gives nearly nothing to nearly all of them: what is drawn is the
    rank of a cell, from 0 for the lowest to 1 for the highest. Zooming out, the highest of the
    cells that become one is drawn: a single patch that stands out is seen at every zoom.

    Args:
        maps: ``(R, rows, columns)``, attention of R tasks; not drawn where it is NaN or 0.
        cell: side of a cell in full-resolution pixels.
        offset: x, y of the top-left corner.
    """

    def __init__(self, maps: Floats, cell: float, offset: tuple[int, int]) -> None:
        ranks = [np.where(m > 0, percentiles(m), np.nan) for m in maps.astype(np.float64)]
        self._levels = [np.stack(ranks).astype(np.float32)]
        while max(self._levels[-1].shape[1:]) > 1:
            self._levels.append(_halved(self._levels[-1]))
        self._cell, self._offset = cell, offset

    def values(self, row: int, at: Place) -> Floats:
        """Of one task, ``(TILE, TILE)`` from 0 to 1; NaN where there is nothing to draw."""
        # The finest cells that are no smaller than a pixel, or some would fall between two.
        level = min(max(0, ceil(log2(at.downsample / self._cell))), len(self._levels) - 1)
        cells, side = self._levels[level][row], self._cell * 2**level
        centres = (np.arange(TILE) + 0.5) * at.downsample
        columns = np.floor((at.left + centres - self._offset[0]) / side).astype(np.int64)
        rows = np.floor((at.top + centres - self._offset[1]) / side).astype(np.int64)
        out = np.full((TILE, TILE), np.nan, dtype=np.float32)
        down = (rows >= 0) & (rows < cells.shape[0])
        right = (columns >= 0) & (columns < cells.shape[1])
        out[np.ix_(down, right)] = cells[np.ix_(rows[down], columns[right])]
        return out

    def tile(self, row: int, at: Place, *, colours: Colours, above: float) -> bytes:
        """A PNG, transparent where the rank is below ``above``."""
        values = self.values(row, at)
        shown = values >= above  # NaN is not
        if not shown.any():
            return _nothing()
        out = np.zeros((TILE, TILE, 4), dtype=np.uint8)
        out[shown] = _table(colours)[np.rint(values[shown] * 255).astype(np.uint8)]
        return _encoded(PILImage.fromarray(out), "PNG")


def _halved(levels: Floats) -> Floats:
    """The highest of two by two cells ``(R, rows, columns)``, of those that there are."""
    _, rows, columns = levels.shape
    padded = np.pad(levels, ((0, 0), (0, rows % 2), (0, columns % 2)), constant_values=np.nan)
    fours = padded.reshape(len(levels), (rows + 1) // 2, 2, (columns + 1) // 2, 2)
    highest: Floats = np.fmax.reduce(np.fmax.reduce(fours, axis=4), axis=2)
    return highest


def _pixels(image: Image, at: Place) -> Pixels:
    """What of a tile lies in the image, ``(h, w, C)``."""
    d = at.downsample
    width, height = image.dimensions
    size = min(TILE, ceil((width - at.left) / d)), min(TILE, ceil((height - at.top) / d))
    nearest = min(image.level_downsamples, key=lambda level: abs(level / d - 1))
    downsample = nearest if abs(nearest / d - 1) < _NEAR else float(d)
    level = image.get_best_level_for_downsample(downsample)
    if TILE * downsample / image.level_downsamples[level] <= _REGION:
        return read_at(image, (at.left, at.top), downsample=downsample, size=size)
    out = np.zeros((2 * TILE, 2 * TILE, image.channels), dtype=np.uint8)
    for y in (0, TILE):
        for x in (0, TILE):
            quarter = Place(at.left + x * d // 2, at.top + y * d // 2, d // 2)
            if quarter.left < width and quarter.top < height:
                pixels = _pixels(image, quarter)
                out[y : y + pixels.shape[0], x : x + pixels.shape[1]] = pixels
    small = np.asarray(_picture(out).resize((TILE, TILE), PILImage.Resampling.BOX))
    return small.reshape(TILE, TILE, -1)[: size[1], : size[0]]


@cache
def _table(colours: Colours) -> Pixels:
    """``(256, 4)``."""
    table: Pixels = colormaps[colours](np.arange(256), bytes=True)
    return table


@cache
def _nothing() -> bytes:
    return _encoded(PILImage.new("RGBA", (TILE, TILE)), "PNG")


def _picture(pixels: Pixels) -> PILImage.Image:
    return PILImage.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)


def _encoded(picture: PILImage.Image, kind: str) -> bytes:
    stream = BytesIO()
    options = {"quality": 88} if kind == "JPEG" else {"compress_level": 1}
    picture.save(stream, kind, **options)
    return stream.getvalue()
