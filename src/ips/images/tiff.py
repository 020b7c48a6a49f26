"""TIFF, BigTIFF and OME-TIFF, tiled or stripped, with or without a pyramid.

Only the tiles or strips that a region overlaps are decoded, and the last few are cached. A
compressed TIFF of a single strip is therefore decoded whole, and refused if it is too large.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import tifffile

from ips.errors import ImageError
from ips.images.colour import white_level
from ips.images.damage import decoding
from ips.images.image import Image, Pixels
from ips.images.tiff_header import read_magnification, read_mpp, read_white
from ips.images.tiff_level import TiffLevel
from ips.images.tiff_pyramid import pyramid
from ips.images.tile_cache import CACHE_BYTES, TileCache
from ips.remote import RemoteFile, address

# Rows of tiles to cache: those of a row of patches and of the next row, which may overlap it.
_ROWS = 4

logging.getLogger("tifffile").setLevel(logging.CRITICAL)  # errors are reported by us

_APERIO_YCBCR = 33003
_RGB = (tifffile.PHOTOMETRIC.RGB, tifffile.PHOTOMETRIC.YCBCR)


class TiffImage(Image):
    """A TIFF read by tifffile and imagecodecs.

    Threads share one file, whose position is guarded by a lock, and one cache of decoded tiles.
    They decode in parallel.

    The background, which is also the value of tiles that are not stored, is white in a tiled RGB
    pyramid (a slide, for which ``SlideImage`` gives the same pixels) and black in any other TIFF.
    The tag Orientation is not applied.
    """

    path: Path

    def __init__(self, path: Path, *, white: float | None = None) -> None:
        self.path = path
        self._white = white
        with decoding(path.name), opened_tiff(path) as file:
            levels = _levels(file, path.name, white)
            self.bits = int(file.series[0].keyframe.bitspersample)
            super().__init__(
                path.name,
                levels=tuple(level.size for level in levels),
                channels=levels[0].channels,
                tiles=tuple(level.tile for level in levels),
                mpp=read_mpp(file),
                magnification=read_magnification(file),
            )
        self.background = levels[0].background

    def close(self) -> None:
        with self._lock:
            if self._handle is not None:
                self._handle.close()
            super().close()

    def _open(self) -> _OpenTiff:
        with decoding(self.name):
            return _OpenTiff(self.path, self._white)

    def _read(self, level: int, x: int, y: int, width: int, height: int) -> Pixels:
        handle: _OpenTiff = self._get_handle()
        return handle.levels[level].read(
            (x, y), (width, height), cache=handle.cache, lock=self._lock
        )


@contextmanager
def opened_tiff(path: Path) -> Iterator[Any]:
    """A TIFF for the block; of a remote file, only the parts that are read are transferred."""
    url = address(path)
    with (
        nullcontext(path) if url is None else RemoteFile(url) as source,
        tifffile.TiffFile(source) as file,
    ):
        yield file


def can_read_ranges(stream: RemoteFile, name: str) -> bool:
    """Whether a TIFF is read as OpenSlide would read it: an ordinary one, or Aperio's SVS.

    Other vendors have rules of their own, and so have Aperio's JPEG 2000 tiles in YCbCr.
    """
    with decoding(name), tifffile.TiffFile(stream) as file:
        vendors = (file.is_ndpi, file.is_scn, file.is_bif, file.is_philips)
        first = file.pages.first
        trestle = str(first.tags.valueof("Software", default="")).startswith("MedScan")
        return not any(vendors) and not trestle and first.compression != _APERIO_YCBCR


class _OpenTiff:
    """An open file and its decoded tiles."""

    def __init__(self, path: Path, white: float | None) -> None:
        stack = ExitStack()
        file = stack.enter_context(opened_tiff(path))
        # tifffile's objects refer to each other, so the garbage collector would close the file
        # late and with a warning.
        self.close = weakref.finalize(self, stack.close)
        self.levels = _levels(file, path.name, white)
        # Patches are read row by row, so caching more than a few rows of tiles is useless.
        rows = max(level.row_bytes for level in self.levels)
        self.cache = TileCache(limit=min(_ROWS * rows, CACHE_BYTES))


def _levels(file: Any, name: str, white: float | None) -> list[TiffLevel]:
    if not file.series:
        raise ImageError(f"{name} is a TIFF without an image: export it again")
    found = pyramid(file.series, name)
    first = file.series[0].keyframe
    slide = len(found) > 1 and first.is_tiled and first.photometric in _RGB
    if first.dtype is None:
        raise ImageError(
            f"{name} has values of {first.bitspersample} bits, which are not read: save it as uint8"
        )
    level = white_level(
        first.dtype, name=name, bits=first.bitspersample, stated=read_white(file), white=white
    )
    background = 255 if slide else 0
    return [
        TiffLevel(pages, size=size, number=number, name=name, background=background, white=level)
        for number, (pages, size) in enumerate(found)
    ]
