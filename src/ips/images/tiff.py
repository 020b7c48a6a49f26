"""TIFF, BigTIFF and OME-TIFF, tiled or stripped, with or without a pyramid.

Only the tiles or strips that a region touches are decoded, and the last few are kept. A compressed
TIFF of a single strip is therefore decoded whole, and refused where that is too much.
"""

from __future__ import annotations

import logging
import weakref
from pathlib import Path
from typing import Any

import tifffile

from ips.errors import ImageError
from ips.images.damage import decoding
from ips.images.image import Header, Image, Pixels
from ips.images.tiff_header import magnification, micrometres
from ips.images.tiff_level import TiffLevel
from ips.images.tiff_pyramid import pyramid
from ips.images.tile_cache import CACHE_BYTES, TileCache

# Rows of tiles worth holding: under a row of patches, and under the next one that overlaps it.
_ROWS = 4

logging.getLogger("tifffile").setLevel(logging.CRITICAL)  # our own sentence tells what is wrong

_RGB = (tifffile.PHOTOMETRIC.RGB, tifffile.PHOTOMETRIC.YCBCR)


class TiffImage(Image):
    """A TIFF read by tifffile and imagecodecs.

    Threads share one file, whose position a lock guards, and one cache of decoded tiles; they
    decode side by side.

    The background, which tiles that were never stored have too, is white in a tiled RGB pyramid:
    that is a slide, and ``SlideImage`` gives the same pixels. In any other TIFF it is black, also
    where ``SlideImage``, which knows slides only, would take it for white.

    Args:
        path: the file.
        cache_bytes: how many bytes of decoded tiles to keep.
    """

    def __init__(self, path: Path, *, cache_bytes: int = CACHE_BYTES) -> None:
        self.path = path
        self._cache_bytes = cache_bytes
        with decoding(path.name), tifffile.TiffFile(path) as file:
            levels = _levels(file, path.name)
            header = Header(
                levels=tuple(level.size for level in levels),
                channels=levels[0].channels,
                tiles=tuple(level.tile for level in levels),
                mpp=micrometres(file),
                magnification=magnification(file),
            )
        super().__init__(path.name, header)
        self.background = levels[0].background

    def close(self) -> None:
        """Let the file go; a later read opens it again."""
        with self._lock:
            if self._handle is not None:
                self._handle.close()
            super().close()

    def _open(self) -> _OpenTiff:
        with decoding(self.name):
            return _OpenTiff(self.path, cache_bytes=self._cache_bytes)

    def _read(self, level: int, x: int, y: int, width: int, height: int) -> Pixels:
        handle: _OpenTiff = self._opened()
        return handle.levels[level].read(
            (x, y), (width, height), cache=handle.cache, lock=self._lock
        )


class _OpenTiff:
    """A file that is open, and what was decoded from it."""

    def __init__(self, path: Path, *, cache_bytes: int) -> None:
        file = tifffile.TiffFile(path)
        # tifffile's objects point at each other, so only the collector would close the file, and
        # with a warning; this closes it with the image that was reading.
        self.close = weakref.finalize(self, file.close)
        self.levels = _levels(file, path.name)
        # Patches are read row by row, so more than a few rows of tiles would be kept for nothing.
        rows = max(level.row_bytes for level in self.levels)
        self.cache = TileCache(limit=min(_ROWS * rows, cache_bytes))


def _levels(file: Any, name: str) -> list[TiffLevel]:
    if not file.series:
        raise ImageError(f"{name} is a TIFF without an image: export it again")
    found = pyramid(file.series, name)
    first = file.series[0].keyframe
    slide = len(found) > 1 and first.is_tiled and first.photometric in _RGB
    return [
        TiffLevel(pages, size=size, number=number, name=name, background=255 if slide else 0)
        for number, (pages, size) in enumerate(found)
    ]
