"""Arrays in memory, and memory-mapped ``.npy`` files."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ips.errors import ImageError
from ips.images.damage import decoding
from ips.images.image import Image, Pixels, Size


def as_pixels(array: npt.NDArray[Any], name: str) -> Pixels:
    """Return ``array`` as a read-only ``(h, w, C)`` view; raise unless it is 8-bit grey or RGB."""
    if array.dtype != np.uint8:
        raise ImageError(
            f"{name} is {array.dtype}, but only 8-bit images are read: "
            "scale it to 0 to 255 and convert it to uint8"
        )
    pixels = array[..., np.newaxis] if array.ndim == 2 else array
    if pixels.ndim != 3 or pixels.shape[2] not in (1, 3):
        raise ImageError(
            f"{name} has shape {array.shape}: expected (height, width), (height, width, 1) "
            "or (height, width, 3)"
        )
    if not pixels.size:
        raise ImageError(f"{name} has shape {array.shape}, so it has no pixels")
    pixels = np.asarray(pixels).view()
    pixels.flags.writeable = False
    return pixels


class WholeImage(Image):
    """An image with one level that is one array."""

    def __init__(self, name: str, *, size: Size, channels: int) -> None:
        super().__init__(name, levels=(size,), channels=channels)

    @property
    def pixels(self) -> Pixels:
        """All pixels, ``(h, w, C)``, read-only."""
        pixels: Pixels = self._get_handle()
        return pixels

    def release(self) -> None:
        """Release the memory of a memory map after ``pixels`` were copied."""

    def _read(self, level: int, x: int, y: int, width: int, height: int) -> Pixels:
        return self.pixels[y : y + height, x : x + width]


class ArrayImage(WholeImage):
    """A uint8 array ``(h, w)`` or ``(h, w, C)``, which is pickled along with the image."""

    def __init__(self, array: npt.NDArray[Any], *, name: str = "array in memory") -> None:
        self._array = as_pixels(array, name)
        height, width, channels = self._array.shape
        super().__init__(name, size=(width, height), channels=channels)

    def _open(self) -> Pixels:
        return as_pixels(self._array, self.name)  # unpickling makes it writable


class NpyImage(WholeImage):
    """A memory-mapped ``.npy`` file; the pages of a region are released after reading."""

    def __init__(self, path: Path) -> None:
        self.path = path
        height, width, channels = self._open().shape
        super().__init__(path.name, size=(width, height), channels=channels)

    def release(self) -> None:
        release_pages(self.pixels)

    def _open(self) -> Pixels:
        with decoding(self.path.name):
            array = np.load(self.path, mmap_mode="r", allow_pickle=False)
            stored, expected = self.path.stat().st_size, array.offset + array.nbytes
        if stored != expected:
            raise ImageError(
                f"{self.path.name} has {stored:,} bytes, but its header describes {array.dtype} "
                f"{array.shape} with {expected:,}: the file is damaged, copy or export it again"
            )
        return as_pixels(array, self.path.name)

    def _read(self, level: int, x: int, y: int, width: int, height: int) -> Pixels:
        region = super()._read(level, x, y, width, height).copy()
        self.release()
        return region


def release_pages(array: npt.NDArray[Any]) -> None:
    """Release the pages of the memory map behind ``array``; a later access loads them again.

    Every page that was read counts as memory of this process until the map is closed, so reading a
    whole image would keep all of it. Only for read-only maps: unsaved changes would be lost.
    """
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
        base.madvise(mmap.MADV_DONTNEED)
