"""The attention map as a pyramidal, tiled TIFF that slide viewers can lay over the slide."""

from __future__ import annotations

import json
from math import ceil
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tifffile
from PIL import Image as PILImage

from ips.explain.maps import AttentionMap, Floats, percentiles, values_at
from ips.files import atomic_path

Pixels = npt.NDArray[np.uint8]

# Smallest number of pixels of the longer side, if the image has as many.
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
    among: Floats | None = None,
) -> None:
    """Write percentiles of attention, 0 to 255, over exactly the area of the image, atomically.

    Slide viewers open 8-bit images. The description of the TIFF has the attention at some
    percentiles, the downsample factor and the offset. A pixel is a cell of the map or a part of
    one, so that the file does not grow with the resolution of the image.

    Args:
        path: TIFF to write.
        attention: attention map of the image.
        area: left, top, width and height of the image in full-resolution pixels.
        mpp: micrometres per full-resolution pixel along x and y.
        task: task whose attention it is; None for the mean over tasks.
        among: values that percentiles are taken among, if the image is one of several of a bag.
    """
    left, top, width, height = area
    side = attention.cell
    while side > 1 and max(width, height) / side < _SIDE:
        side = max(side / 2, 1)
    columns, rows = max(1, round(width / side)), max(1, round(height / side))
    step = width / columns, height / rows  # full-resolution pixels per pixel
    ranks = percentiles(attention.values, among=among)
    pixels = _sampled(attention, ranks, (left, top), step, (columns, rows))
    every = attention.values if among is None else among
    about = {
        "what": "attention by percentile, 0 to 255",
        "task": task,
        "downsample": step,
        "offset": (left, top),
        "raw": dict(zip(map(str, _SHARES), values_at(every, _SHARES), strict=True)),
    }
    resolution = None if mpp is None else [1e4 / (m * s) for m, s in zip(mpp, step, strict=True)]
    with atomic_path(path) as part, tifffile.TiffWriter(part) as file:
        for number, level in enumerate(_pyramid(pixels)):
            file.write(
                level,
                tile=(_TILE, _TILE),
                photometric="minisblack",
                compression="adobe_deflate",
                subfiletype=int(number > 0),
                resolution=resolution and [r / 2**number for r in resolution],
                resolutionunit=resolution and "CENTIMETER",
                description=json.dumps(about) if number == 0 else None,
                metadata=None,
            )


def _sampled(
    attention: AttentionMap,
    ranks: npt.NDArray[np.float32],
    corner: tuple[int, int],
    step: tuple[float, float],
    size: tuple[int, int],
) -> Pixels:
    """The rank of the cell under the centre of each pixel; 0 outside the map."""
    scaled = np.rint(255 * ranks).astype(np.uint8)
    padded = np.pad(scaled, 1)  # positions outside the map are moved to its rim
    at = []
    for axis in (0, 1):
        centre = corner[axis] + (np.arange(size[axis]) + 0.5) * step[axis] - attention.offset[axis]
        cell = np.floor(centre / attention.cell).astype(np.int64) + 1
        at.append(np.clip(cell, 0, padded.shape[1 - axis] - 1))
    return np.ascontiguousarray(padded[at[1][:, None], at[0][None, :]])


def _pyramid(pixels: Pixels) -> list[Pixels]:
    """Levels of half the size of the one before, until a level fits into one tile."""
    levels = [pixels]
    while max(pixels.shape) > _TILE and min(pixels.shape) > 1:
        height, width = pixels.shape
        size = ceil(width / 2), ceil(height / 2)
        pixels = np.asarray(PILImage.fromarray(pixels).resize(size, PILImage.Resampling.BOX))
        levels.append(pixels)
    return levels
