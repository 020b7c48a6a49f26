"""Arrays in memory, and memory-mapped ``.npy`` files."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from ips.errors import ImageError
from ips.images.colour import to_bytes, white_level
from ips.images.damage import decoding
from ips.images.image import Image, Pixels, Size
from ips.remote import local_file

#: More bands than this are rather a side of the image, or a damaged tag.
MAX_BANDS = 512


def as_pixels(array: npt.NDArray[Any], name: str, *, white: float | None = None) -> Pixels:
    """Return ``array`` as read-only ``(h, w, C)`` pixels of 8 bits, a view if it has 8 bits."""
    values = _shaped(array, name)
    pixels = to_bytes(values, white_level(array.dtype, name=name, white=white)).view()
    pixels.flags.writeable = False
    return pixels


def _shaped(array: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    """Return ``array`` as ``(h, w, C)``; raise if it is not an image."""
    values = array[..., np.newaxis] if array.ndim == 2 else array
    if values.ndim != 3 or values.shape[2] > MAX_BANDS:
        raise ImageError(
            f"{name} has shape {array.shape}: expected (height, width) or (height, width, channels)"
        )
    if not values.size:
        raise ImageError(f"{name} has shape {array.shape}, so it has no pixels")
    return np.asarray(values)


class WholeImage(Image):
    """An image with one level that is one array."""

    def __init__(self, name: str, *, size: Size, channels: int) -> None:
        super().__init__(name, levels=(size,), channels=channels)

    @property
    def pixels(self) -> Pixels:
        """All pixels, ``(h, w, C)``, read-only."""
        pixels: Pixels = self._get_handle()
        return pixels

    def cut(self, corners: npt.NDArray[np.int64], side: int) -> Pixels:
        """Cut k square patches in one step: ``(k, C, side, side)``.

        All must lie inside the image; ``corners`` ``(k, 2)`` are x, y of their top-left pixels.
        """
        x, y = corners.T
        windows = sliding_window_view(self.pixels, (side, side), axis=(0, 1))
        return np.ascontiguousarray(windows[y, x])  # from (h', w', C, side, side)

    def _read(self, level: int, x: int, y: int, width: int, height: int) -> Pixels:
        return self.pixels[y : y + height, x : x + width]


class ArrayImage(WholeImage):
    """An array ``(h, w)`` or ``(h, w, C)``, which is pickled along with the image.

    Args:
        array: uint8, or deeper values, which are converted once.
        white: see `ips.images.open_image`.
    """

    def __init__(
        self,
        array: npt.NDArray[Any],
        *,
        name: str = "array in memory",
        white: float | None = None,
    ) -> None:
        self._array = as_pixels(array, name, white=white)
        height, width, channels = self._array.shape
        super().__init__(name, size=(width, height), channels=channels)

    def _open(self) -> Pixels:
        return as_pixels(self._array, self.name)  # unpickling makes it writable


class NpyImage(WholeImage):
    """A memory-mapped ``.npy`` file; the pages of a region are released after reading.

    Its ``pixels`` are the stored values. Values deeper than 8 bits are converted as they are read.
    """

    path: Path

    def __init__(self, path: Path, *, white: float | None = None) -> None:
        self.path = path
        values = self._open()
        self._white = white_level(values.dtype, name=path.name, white=white)
        self.bits = 8 * values.dtype.itemsize
        height, width, channels = values.shape
        super().__init__(path.name, size=(width, height), channels=channels)

    def cut(self, corners: npt.NDArray[np.int64], side: int) -> Pixels:
        values = super().cut(corners, side)
        release_pages(self.pixels)
        return to_bytes(values, self._white)

    def _open(self) -> npt.NDArray[Any]:
        with decoding(self.path.name), local_file(self.path) as file:
            array = np.load(file, mmap_mode="r", allow_pickle=False)
            stored, expected = file.stat().st_size, array.offset + array.nbytes
        if stored != expected:
            raise ImageError(
                f"{self.path.name} has {stored:,} bytes, but its header describes {array.dtype} "
                f"{array.shape} with {expected:,}: the file is damaged, copy or export it again"
            )
        return _shaped(array, self.path.name)

    def _read(self, level: int, x: int, y: int, width: int, height: int) -> Pixels:
        region = super()._read(level, x, y, width, height).copy()
        release_pages(self.pixels)
        return to_bytes(region, self._white)


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
