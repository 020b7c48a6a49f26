"""Whole slides through OpenSlide: Aperio, Hamamatsu, MIRAX, Leica, Ventana, DICOM and others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openslide

from ips.images.colour import over
from ips.images.damage import DamagedError, decoding
from ips.images.image import Image, Pixels, Size
from ips.images.tile_cache import CACHE_BYTES
from ips.remote import local_file


def vendor_of(path: Path) -> str | None:
    """Return OpenSlide's name for the format of a file, None if it does not know the format."""
    with decoding(path.name), local_file(path) as file:
        vendor: str | None = openslide.OpenSlide.detect_format(file)
    return vendor


class SlideImage(Image):
    """A whole slide; regions that were not scanned are white.

    OpenSlide is thread-safe, so threads share one handle and one tile cache. It takes locations in
    whole level-0 pixels, so a level whose downsample is not an integer is interpolated, shifted by
    less than half a pixel.
    """

    background = 255

    path: Path

    def __init__(self, path: Path) -> None:
        self.path = path
        with decoding(path.name), self._opened() as slide:
            x, y, power = _numbers(slide, "mpp-x", "mpp-y", "objective-power")
            bounds = _numbers(slide, "bounds-x", "bounds-y", "bounds-width", "bounds-height")
            left, top, width, height = map(int, bounds)
            super().__init__(
                path.name,
                levels=tuple(slide.level_dimensions),
                channels=3,
                tiles=tuple(_tile(slide, level) for level in range(slide.level_count)),
                mpp=(x, y) if x and y else None,
                magnification=power or None,
                bounds=(left, top, width, height) if width and height else None,
            )
            # Some vendors store the factors in the file, and OpenSlide prefers them.
            self.level_downsamples = tuple(slide.level_downsamples)

    def _opened(self) -> openslide.OpenSlide:
        with local_file(self.path) as file:
            return openslide.OpenSlide(file)

    def _open(self) -> openslide.OpenSlide:
        with decoding(self.name):
            slide = self._opened()
            slide.set_cache(openslide.OpenSlideCache(CACHE_BYTES))
            return slide

    def _read(self, level: int, x: int, y: int, width: int, height: int) -> Pixels:
        slide = self._get_handle()
        downsample = self.level_downsamples[level]
        location = round(x * downsample), round(y * downsample)
        what = f"{self.name}: the region at {location} of level {level}"
        try:
            with decoding(what):
                region = slide.read_region(location, level, (width, height))
        except DamagedError:
            # After an error every read of a handle fails, so the next read opens a new one. The old
            # one is not closed, because other threads may be reading from it.
            with self._lock:
                if self._handle is slide:
                    self._handle = None
            # The error may be that of another thread, so try again with an own handle.
            with self._open() as own, decoding(what):
                region = own.read_region(location, level, (width, height))
        return over(np.asarray(region), self.background)


def _numbers(slide: openslide.OpenSlide, *keys: str) -> list[float]:
    """Properties of the slide, 0 where they are not stated."""
    return [float(slide.properties.get(f"openslide.{key}") or 0) for key in keys]


def _tile(slide: openslide.OpenSlide, level: int) -> Size | None:
    sides = _numbers(slide, *(f"level[{level}].tile-{side}" for side in ("width", "height")))
    width, height = map(int, sides)
    return (width, height) if width and height else None
