"""Render tiles of an image, and of the attention over it, at any zoom.

At the largest zoom a pixel of a tile is a pixel of the image. Each smaller zoom halves the
resolution; at zoom 0 the whole image fits into one tile.
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
from pydantic import BaseModel, Field

from ips.explain.maps import percentiles
from ips.images import Image, read_at
from ips.images.colour import as_rgb, to_channels

Pixels = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

TILE = 256
THUMBNAIL = 112
ColourMap = Literal["viridis", "magma", "turbo", "cividis"]
COLOUR_MAPS: tuple[ColourMap, ...] = get_args(ColourMap)

# A level with nearly the right resolution is not resampled: over a tile it is off by half a pixel.
_NEAR = 0.002

# Largest side of the region read for a tile. If the file has no level that is coarse enough, a tile
# is assembled from four tiles of the next zoom: memory is bounded, time grows with the area.
_MAX_REGION = 4096


@dataclass(frozen=True)
class Tile:
    """Top-left corner of a tile, and the side of its pixels, in full-resolution pixels."""

    left: int
    top: int
    downsample: int

    def inside(self, size: tuple[int, int]) -> tuple[int, int]:
        """Columns and rows of its pixels that lie inside an image of this size."""
        (width, height), d = size, self.downsample
        return min(TILE, ceil((width - self.left) / d)), min(TILE, ceil((height - self.top) / d))


class MapStyle(BaseModel, frozen=True):
    """How an attention map is drawn.

    Attributes:
        task: index of the map; the number of tasks stands for their mean.
        colour_map: name of the colours.
        min_rank: cells of a lower rank are transparent.
    """

    task: int = Field(ge=0)
    colour_map: ColourMap = "viridis"
    min_rank: float = Field(default=0.0, ge=0, le=1, allow_inf_nan=False)


def max_zoom(image: Image) -> int:
    """The largest zoom of an image."""
    return max(0, ceil(log2(max(image.dimensions) / TILE)))


def find_tile(image: Image, zoom: int, column: int, row: int) -> Tile | None:
    """The position of a tile, None outside the image."""
    if not 0 <= zoom <= max_zoom(image):
        return None
    downsample = 2 ** (max_zoom(image) - zoom)
    left, top = column * TILE * downsample, row * TILE * downsample
    width, height = image.dimensions
    inside = 0 <= left < width and 0 <= top < height
    return Tile(left, top, downsample) if inside else None


def render_tile(image: Image, tile: Tile) -> bytes:
    """A tile as JPEG; at the right and bottom edge as PNG, transparent outside the image."""
    pixels = _read_tile(image, tile)
    if pixels.shape[:2] == (TILE, TILE):
        return _encode(_to_pil(pixels), "JPEG")
    padded = PILImage.new("RGBA", (TILE, TILE))
    padded.paste(_to_pil(pixels).convert("RGBA"))
    return _encode(padded, "PNG")


def render_patch(image: Image, x: int, y: int, extent: int) -> bytes:
    """A patch as a small PNG, never enlarged."""
    side = min(extent, THUMBNAIL)
    pixels = read_at(image, (x, y), downsample=extent / side, size=(side, side))
    return _encode(_to_pil(pixels), "PNG")


def render_colour_map(colour_map: ColourMap) -> bytes:
    """A colour map from left to right, as PNG."""
    return _encode(PILImage.fromarray(_colour_table(colour_map)[None]), "PNG")


class AttentionTiles:
    """Tiles of attention maps, as ranks.

    A softmax over many patches is close to zero for nearly all of them, so the tiles show the rank
    of a cell: 0 for the lowest attention, 1 for the highest. Zooming out takes the maximum of the
    merged cells, so a single patch of high attention is visible at every zoom.

    Args:
        maps: ``(R, rows, columns)`` attention; cells that are NaN or 0 are transparent.
        cell: side of a cell in full-resolution pixels.
        offset: x, y of the top-left corner.
    """

    def __init__(self, maps: Floats, cell: float, offset: tuple[int, int]) -> None:
        ranks = [np.where(m > 0, percentiles(m), np.nan) for m in maps.astype(np.float64)]
        self._levels = [np.stack(ranks).astype(np.float32)]
        while max(self._levels[-1].shape[1:]) > 1:
            self._levels.append(_max_pool(self._levels[-1]))
        self._cell, self._offset = cell, offset

    def ranks(self, index: int, tile: Tile) -> Floats:
        """Ranks ``(TILE, TILE)`` of one map in a tile; NaN where nothing is drawn."""
        # The finest cells that are at least as large as a pixel, so that none is skipped.
        level = min(max(0, ceil(log2(tile.downsample / self._cell))), len(self._levels) - 1)
        cells, side = self._levels[level][index], self._cell * 2**level
        centres = (np.arange(TILE) + 0.5) * tile.downsample
        columns = np.floor((tile.left + centres - self._offset[0]) / side).astype(np.int64)
        rows = np.floor((tile.top + centres - self._offset[1]) / side).astype(np.int64)
        out = np.full((TILE, TILE), np.nan, dtype=np.float32)
        inside_y = (rows >= 0) & (rows < cells.shape[0])
        inside_x = (columns >= 0) & (columns < cells.shape[1])
        out[np.ix_(inside_y, inside_x)] = cells[np.ix_(rows[inside_y], columns[inside_x])]
        return out

    def render(self, tile: Tile, style: MapStyle, *, size: tuple[int, int]) -> bytes:
        """A tile of one map as PNG; cells end with the image, which has this size."""
        ranks = self.ranks(style.task, tile)
        visible = ranks >= style.min_rank  # False for NaN
        columns, rows = tile.inside(size)
        visible[:, columns:] = visible[rows:] = False
        out = np.zeros((TILE, TILE, 4), dtype=np.uint8)
        out[visible] = _colour_table(style.colour_map)[
            np.rint(ranks[visible] * 255).astype(np.uint8)
        ]
        return _encode(PILImage.fromarray(out), "PNG")


def _max_pool(cells: Floats) -> Floats:
    """Maximum of two by two cells ``(R, rows, columns)``, ignoring NaN."""
    _, rows, columns = cells.shape
    padded = np.pad(cells, ((0, 0), (0, rows % 2), (0, columns % 2)), constant_values=np.nan)
    blocks = padded.reshape(len(cells), (rows + 1) // 2, 2, (columns + 1) // 2, 2)
    pooled: Floats = np.fmax.reduce(np.fmax.reduce(blocks, axis=4), axis=2)
    return pooled


def _read_tile(image: Image, tile: Tile) -> Pixels:
    """The pixels ``(h, w, C)`` of a tile that lie inside the image."""
    d, (width, height) = tile.downsample, image.dimensions
    size = tile.inside(image.dimensions)
    nearest = min(image.level_downsamples, key=lambda level: abs(level / d - 1))
    downsample = nearest if abs(nearest / d - 1) < _NEAR else float(d)
    level = image.get_best_level_for_downsample(downsample)
    if TILE * downsample / image.level_downsamples[level] <= _MAX_REGION:
        return read_at(image, (tile.left, tile.top), downsample=downsample, size=size)
    shown = 1 if image.channels == 1 else 3
    out = np.zeros((2 * TILE, 2 * TILE, shown), dtype=np.uint8)
    for y in (0, TILE):
        for x in (0, TILE):
            quarter = Tile(tile.left + x * d // 2, tile.top + y * d // 2, d // 2)
            if quarter.left < width and quarter.top < height:
                pixels = to_channels(_read_tile(image, quarter), "rgb" if shown == 3 else "grey")
                out[y : y + pixels.shape[0], x : x + pixels.shape[1]] = pixels
    small = np.asarray(_to_pil(out).resize((TILE, TILE), PILImage.Resampling.BOX))
    return small.reshape(TILE, TILE, -1)[: size[1], : size[0]]


@cache
def _colour_table(colour_map: ColourMap) -> Pixels:
    table: Pixels = colormaps[colour_map](np.arange(256), bytes=True)  # (256, 4)
    return table


def _to_pil(pixels: Pixels) -> PILImage.Image:
    return PILImage.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else as_rgb(pixels))


def _encode(picture: PILImage.Image, kind: str) -> bytes:
    stream = BytesIO()
    options = {"quality": 88} if kind == "JPEG" else {"compress_level": 1}
    picture.save(stream, kind, **options)
    return stream.getvalue()
