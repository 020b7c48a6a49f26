"""The attention map as a pyramidal, tiled TIFF that lies on the slide in other viewers."""

from __future__ import annotations

import json
from math import ceil
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tifffile
from PIL import Image as PILImage

from ips.explain.maps import AttentionMap, percentiles, raw_at

Pixels = npt.NDArray[np.uint8]

# The longer side has at least so many pixels, if the image has: cells keep their edges.
_SIDE = 1024
_TILE = 256
_SHARES = [0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0]


def write_map_tiff(
    path: Path,
    attention: AttentionMap,
    *,
    area: tuple[int, int, int, int],
    mpp: tuple[float, float] | None = None,
    task: str | None = None,
) -> None:
    """Attention by percentile, 0 to 255, over exactly the area of the image.

    Eight bits, since viewers of slides open those; the raw values are in the table of patches, and
    some of them, with downsample and offset, in the TIFF's description. A pixel is a cell of the
    map or a part of one, so the file does not grow with the resolution of the image.

    Args:
        path: of the TIFF, which appears whole or not at all.
        attention: the map.
        area: left, top, width and height of the image in full-resolution pixels.
        mpp: micrometres per full-resolution pixel of the image.
        task: whose attention it is; None for the mean over tasks.
    """
    left, top, width, height = area
    side = attention.cell
    while side > 1 and max(width, height) / side < _SIDE:
        side = max(side / 2, 1)
    columns, rows = max(1, round(width / side)), max(1, round(height / side))
    step = width / columns, height / rows  # full-resolution pixels per pixel, to cover all of it
    pixels = _sampled(attention, (left, top), step, (columns, rows))
    raw = raw_at(attention.values, _SHARES)
    about = {
        "what": "attention by percentile, 0 to 255",
        "task": task,
        "downsample": step,
        "offset": (left, top),
        "raw": dict(zip(map(str, _SHARES), raw, strict=True)),
    }
    resolution = None if mpp is None else [1e4 / (m * s) for m, s in zip(mpp, step, strict=True)]
    partial = path.with_suffix(".partial")
    with tifffile.TiffWriter(partial) as file:
        description: str | None = json.dumps(about)
        for number, level in enumerate(_pyramid(pixels)):
            file.write(
                level,
                tile=(_TILE, _TILE),
                photometric="minisblack",
                compression="adobe_deflate",
                subfiletype=int(number > 0),
                resolution=None if resolution is None else [r / 2**number for r in resolution],
                resolutionunit=None if resolution is None else "CENTIMETER",
                description=description,
                metadata=None,
            )
            description = None
    partial.replace(path)


def _sampled(
    attention: AttentionMap,
    corner: tuple[int, int],
    step: tuple[float, float],
    size: tuple[int, int],
) -> Pixels:
    """The cell under the centre of each pixel; 0 where there is none."""
    scaled = np.rint(255 * percentiles(attention.values)).astype(np.uint8)
    padded = np.pad(scaled, 1)  # what lies outside the map takes its rim
    at = []
    for axis in (0, 1):
        centre = corner[axis] + (np.arange(size[axis]) + 0.5) * step[axis] - attention.offset[axis]
        cell = np.floor(centre / attention.cell).astype(np.int64) + 1
        at.append(np.clip(cell, 0, padded.shape[1 - axis] - 1))
    return np.ascontiguousarray(padded[at[1][:, None], at[0][None, :]])


def _pyramid(pixels: Pixels) -> list[Pixels]:
    """Each level half of the one before, until it fits on one tile."""
    levels = [pixels]
    while max(pixels.shape) > _TILE and min(pixels.shape) > 1:
        height, width = pixels.shape
        size = ceil(width / 2), ceil(height / 2)
        pixels = np.asarray(PILImage.fromarray(pixels).resize(size, PILImage.Resampling.BOX))
        levels.append(pixels)
    return levels
