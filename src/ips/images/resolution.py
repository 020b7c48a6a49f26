"""Read at a resolution given as a level, micrometres per pixel, a magnification or a scale."""

from __future__ import annotations

import math

import numpy as np
from PIL import Image as PILImage

from ips.errors import ImageError
from ips.images.image import Image, Pixels, Size

#: A level this close to the requested resolution is read without resampling, which would cost
#: sharpness and time. Scanners that all claim 40x differ by about as much.
TOLERANCE = 0.02


def downsample_for(
    image: Image,
    *,
    level: int | None = None,
    mpp: float | None = None,
    magnification: float | None = None,
    scale: float | None = None,
) -> float:
    """Return the level-0 pixels per pixel at the requested resolution, level 0 by default.

    ``mpp=0.5`` gives 2.0 for a slide that was scanned at 0.25 µm per pixel, and ``scale=0.5`` gives
    2.0 for any image.
    """
    if sum(value is not None for value in (level, mpp, magnification, scale)) > 1:
        raise ImageError(
            f"{image.name}: level={level}, mpp={mpp}, magnification={magnification} and "
            f"scale={scale} are four ways to give the resolution: give one of them"
        )
    if scale is not None:
        downsample = 1 / scale if scale > 0 else 0.0
        return _snap_to_level(image, downsample, f"scale={scale}", "a scale of 1")
    if mpp is not None:
        if image.mpp is None:
            raise ImageError(
                f"{image.name} does not state its micrometres per pixel, so mpp={mpp} cannot be "
                "met: use level= instead"
            )
        finest = sum(image.mpp) / 2
        return _snap_to_level(image, mpp / finest, f"mpp={mpp}", f"{finest:.4g} µm per pixel")
    if magnification is not None:
        power = image.magnification
        if not power:
            raise ImageError(
                f"{image.name} does not state its magnification, so magnification={magnification} "
                "cannot be met: use mpp= or level= instead"
            )
        downsample = power / magnification if magnification > 0 else 0.0
        return _snap_to_level(image, downsample, f"magnification={magnification}", f"{power:g}x")
    image.tile_size(level or 0)  # raises if there is no such level
    return image.level_downsamples[level or 0]


def read_at(image: Image, location: tuple[int, int], *, downsample: float, size: Size) -> Pixels:
    """Read a region at any resolution, averaged from the coarsest level that is fine enough.

    Args:
        image: image to read from.
        location: left and top in level-0 pixels.
        downsample: level-0 pixels per pixel of the result, from :func:`downsample_for`.
        size: width and height of the result.

    Returns:
        ``(h, w, C)`` uint8.
    """
    level = image.get_best_level_for_downsample(downsample)
    scale = downsample / image.level_downsamples[level]
    width, height = (max(1, round(side * scale)) for side in size)
    region = image.read_region(location, level, (width, height))
    if (width, height) == size:
        return region
    if image.channels == 3:
        return _averaged(region, size)
    bands = [_averaged(np.ascontiguousarray(band), size) for band in region.transpose(2, 0, 1)]
    return np.stack(bands, axis=2)


def _averaged(pixels: Pixels, size: Size) -> Pixels:
    return np.asarray(PILImage.fromarray(pixels).resize(size, PILImage.Resampling.BOX))


def _snap_to_level(image: Image, downsample: float, requested: str, finest: str) -> float:
    """Return ``downsample``, or that of a level within the tolerance."""
    if not 0 < downsample < math.inf:
        raise ImageError(f"{image.name}: {requested} is not a resolution: give a number above 0")
    nearest = min(image.level_downsamples, key=lambda d: abs(d / downsample - 1))
    if abs(nearest / downsample - 1) <= TOLERANCE:
        return nearest
    if downsample < 1:
        raise ImageError(
            f"{image.name}: {requested} is finer than the file, which has {finest}: "
            "request that or a coarser one"
        )
    return downsample
