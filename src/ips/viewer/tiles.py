"""Render tiles of an image, and of the attention over it, at any zoom.

At the largest zoom a pixel of a tile is a pixel of the image. Each smaller zoom halves the
resolution; at zoom 0 the whole image fits into one tile.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from ips.patches.thumbnail import shrink_image

Pixels = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

TILE = 256
PATCH = 160  # largest side of the picture of a patch
THUMBNAIL = 256  # largest side of the picture of an image
ColourMap = Literal["viridis", "magma", "turbo", "cividis"]
COLOUR_MAPS: tuple[ColourMap, ...] = get_args(ColourMap)

#: Multiples of an even share with the first and the last colour.
SHARE_RANGE = 1.0, 100.0
TICKS = 0.0, 0.25, 0.5, 0.75, 1.0  # ranks with a number below the colours

# A level with nearly the right resolution is not resampled: over a tile it is off by half a pixel.
_NEAR = 0.002

# Largest side of the region read for a tile. If the file has no level that is coarse enough, a tile
# is assembled from four tiles of the next zoom: memory is bounded, time grows with the area.
_MAX_REGION = 4096

# Pixels that may be read, and of a PNG or JPEG decoded at once, for a picture in the list.
_MAX_THUMBNAIL_PIXELS = 2**26


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
        part: number of the image at one magnification, if the bag has several.
        colour_map: name of the colours.
        scale: colours show ranks within the bag, or attention as a multiple of an even share on a
            logarithmic scale, which is the same for all bags.
        smooth: interpolate between the centres of cells.
        min_rank: cells of a lower rank are transparent.
    """

    task: int = Field(ge=0)
    part: int = Field(default=0, ge=0)
    colour_map: ColourMap = "viridis"
    scale: Literal["rank", "share"] = "rank"
    smooth: bool = False
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
    side = min(extent, PATCH)
    pixels = read_at(image, (x, y), downsample=extent / side, size=(side, side))
    return _encode(_to_pil(pixels), "PNG")


def render_thumbnail(image: Image) -> bytes | None:
    """The scanned region of an image as a small JPEG; None if too many pixels would be read."""
    width, height = image.bounds[2:]
    level = image.get_best_level_for_downsample(max(width, height, THUMBNAIL) / THUMBNAIL)
    if width * height / image.level_downsamples[level] ** 2 > _MAX_THUMBNAIL_PIXELS:
        return None
    return _encode(_to_pil(shrink_image(image, THUMBNAIL).pixels), "JPEG")


def render_colour_map(colour_map: ColourMap) -> bytes:
    """A colour map from left to right, as PNG."""
    return _encode(PILImage.fromarray(_colour_table(colour_map)[None]), "PNG")


class AttentionTiles:
    """Tiles of the attention maps of one image, as ranks or as multiples of an even share.

    Zooming out takes the maximum of the merged cells, so a single patch of high attention is
    visible at every zoom.

    Args:
        ranks: ``(R, rows, columns)`` ranks of the cells from 0 to 1; NaN is transparent.
        ratios: for each map, the multiples of an even share from rank 0 to rank 1.
        cell: side of a cell in full-resolution pixels.
        offset: x, y of the top-left corner.
    """

    def __init__(
        self, ranks: Floats, ratios: Sequence[Floats], *, cell: float, offset: tuple[int, int]
    ) -> None:
        self._levels = [ranks]
        while max(self._levels[-1].shape[1:]) > 1:
            self._levels.append(_max_pool(self._levels[-1]))
        self._ratios, self._cell, self._offset = ratios, cell, offset

    def ratios(self, index: int, ranks: npt.ArrayLike) -> Floats:
        """Attention at these ranks of one map, as multiples of an even share."""
        ordered = self._ratios[index]
        places = np.asarray(ranks) * (len(ordered) - 1)
        found: Floats = ordered[np.rint(places).astype(np.int64)]
        return found

    def ranks(self, index: int, tile: Tile, *, smooth: bool = False) -> Floats:
        """Ranks ``(TILE, TILE)`` of one map in a tile; NaN where nothing is drawn."""
        # The finest cells that are at least as large as a pixel, so that none is skipped.
        level = min(max(0, ceil(log2(tile.downsample / self._cell))), len(self._levels) - 1)
        cells, side = self._levels[level][index], self._cell * 2**level
        centres = (np.arange(TILE) + 0.5) * tile.downsample
        x = (tile.left + centres - self._offset[0]) / side  # (TILE,) in cells
        y = (tile.top + centres - self._offset[1]) / side
        drawn = _cells_at(cells, np.floor(y), np.floor(x))
        return np.where(np.isnan(drawn), np.nan, _interpolated(cells, y, x)) if smooth else drawn

    def render(self, tile: Tile, style: MapStyle, *, size: tuple[int, int]) -> bytes:
        """A tile of one map as PNG; cells end with the image, which has this size."""
        ranks = self.ranks(style.task, tile, smooth=style.smooth)
        columns, rows = tile.inside(size)
        ranks[:, columns:] = ranks[rows:] = np.nan
        return _encode(PILImage.fromarray(self._coloured(ranks, style)), "PNG")

    def render_area(self, area: tuple[int, int, int, int], style: MapStyle) -> bytes:
        """All of one map inside left, top, width and height, as a small PNG of that shape."""
        left, top, width, height = area
        tile = Tile(left, top, downsample=ceil(max(width, height) / TILE))
        columns, rows = tile.inside((left + width, top + height))
        ranks = self.ranks(style.task, tile, smooth=style.smooth)[:rows, :columns]
        return _encode(PILImage.fromarray(self._coloured(ranks, style)), "PNG")

    def _coloured(self, ranks: Floats, style: MapStyle) -> Pixels:
        """Ranks ``(h, w)`` as colours ``(h, w, 4)``."""
        visible = ranks >= style.min_rank  # False for NaN
        shown = ranks[visible]
        if style.scale == "share":
            low, high = np.log(SHARE_RANGE)
            logarithms = np.log(self.ratios(style.task, shown))
            shown = np.clip((logarithms - low) / (high - low), 0, 1)
        out = np.zeros((*ranks.shape, 4), dtype=np.uint8)
        out[visible] = _colour_table(style.colour_map)[np.rint(shown * 255).astype(np.uint8)]
        return out


def rank_maps(maps: Sequence[Floats], patches: Sequence[int]) -> tuple[list[Floats], list[Floats]]:
    """Rank the cells of all maps of a bag among each other.

    A softmax over many patches is close to zero for nearly all of them. The rank of a cell is
    therefore 0 for the lowest attention and 1 for the highest in the bag.

    Args:
        maps: ``(R, rows, columns)`` attention to each image at each magnification.
        patches: number of patches with any attention, for each of the R maps.

    Returns:
        Ranks like ``maps``, NaN where a cell is NaN or 0; and for each of the R, the attention from
        rank 0 to rank 1 as a multiple of an even share.
    """
    every = [m.reshape(len(m), -1).astype(np.float64) for m in maps]
    values = np.concatenate(every, axis=1)  # (R, cells of all maps)
    ranks = np.stack([percentiles(row) for row in values])
    ranks[~(values > 0)] = np.nan
    ends = np.cumsum([m.shape[1] for m in every])[:-1]
    pieces = np.split(ranks, ends, axis=1)
    pairs = zip(values, patches, strict=True)
    return (
        [piece.reshape(m.shape) for piece, m in zip(pieces, maps, strict=True)],
        [(np.sort(row[row > 0]) * n).astype(np.float32) for row, n in pairs],
    )


def _cells_at(cells: Floats, rows: Floats, columns: Floats) -> Floats:
    """Values ``(h, w)`` of the cells in these rows ``(h,)`` and columns ``(w,)``, NaN outside."""
    out = np.full((len(rows), len(columns)), np.nan, dtype=np.float32)
    inside_y = (rows >= 0) & (rows < cells.shape[0])
    inside_x = (columns >= 0) & (columns < cells.shape[1])
    places = np.ix_(rows[inside_y].astype(np.int64), columns[inside_x].astype(np.int64))
    out[np.ix_(inside_y, inside_x)] = cells[places]
    return out


def _interpolated(cells: Floats, y: Floats, x: Floats) -> Floats:
    """Bilinear interpolation ``(h, w)`` between the centres of cells; NaN cells have no weight."""
    total, weight = np.zeros((2, len(y), len(x)))
    top, left = np.floor(y - 0.5), np.floor(x - 0.5)
    down, right = y - 0.5 - top, x - 0.5 - left
    for rows, row_weights in ((top, 1 - down), (top + 1, down)):
        for columns, column_weights in ((left, 1 - right), (left + 1, right)):
            values = _cells_at(cells, rows, columns)
            share = np.where(np.isnan(values), 0, np.outer(row_weights, column_weights))
            total += share * np.nan_to_num(values)
            weight += share
    return (total / np.maximum(weight, 1e-9)).astype(np.float32)


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
