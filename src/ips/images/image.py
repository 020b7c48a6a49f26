"""Base class of images: read the pixels of a region at a level, with the names of OpenSlide."""

from __future__ import annotations

import os
import threading
import weakref
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ips.errors import ImageError
from ips.files import Closable

Pixels = npt.NDArray[np.uint8]
Size = tuple[int, int]


class Image(Closable, ABC):
    """An image that is read region by region.

    The constructor reads the header and closes the file again; the first ``read_region`` opens it.
    An image can be pickled at any time (the copy reopens the file), and read from several threads,
    which share one handle. Each subclass locks only what its library does not lock itself.

    Args:
        name: name of the image in messages.
        levels: width and height of each level, full resolution first.
        channels: number of channels: 1 for grey, 3 for colour, or the bands of a file.
        tiles: width and height of a tile (or strip) of each level, None where there are none.
        mpp: micrometres per pixel of level 0 along x and y, None if unknown.
        magnification: magnification of the objective, such as 40.0, None if unknown.
        bounds: x, y, width, height of the scanned region in level-0 pixels; all by default.
    """

    #: File of the image; None if it is in memory.
    path: Path | None = None

    #: Value of pixels outside the image, of tiles that are not stored, and behind transparency.
    background = 0

    #: Bits of a stored value, of one channel.
    bits = 8

    #: EXIF orientation of the file, 1 to 8; 1 if it is upright as it is stored.
    orientation = 1

    #: Whether reading any region decodes the whole image into memory.
    decoded_whole = False

    def __init__(
        self,
        name: str,
        *,
        levels: tuple[Size, ...],
        channels: int,
        tiles: tuple[Size | None, ...] | None = None,
        mpp: tuple[float, float] | None = None,
        magnification: float | None = None,
        bounds: tuple[int, int, int, int] | None = None,
    ) -> None:
        self.name = name
        self.level_dimensions = levels
        self.level_count = len(levels)
        self.dimensions = width, height = levels[0]
        # Level-0 pixels per pixel of each level: the mean of width and height.
        self.level_downsamples = tuple((width / w + height / h) / 2 for w, h in levels)
        self.channels = channels
        self.mpp = mpp
        self.magnification = magnification
        self.bounds = bounds or (0, 0, width, height)
        self._tiles = tiles or (None,) * len(levels)
        self._reset()

    def _reset(self) -> None:
        self._handle: Any = None
        self._lock = threading.RLock()
        _ALIVE.add(self)

    def tile_size(self, level: int) -> Size | None:
        """Width and height of a tile, None if the level is not divided into tiles."""
        return self._tiles[self._check_level(level)]

    def get_best_level_for_downsample(self, downsample: float) -> int:
        """Return the coarsest level that is at least as fine as ``downsample``."""
        finer = [i for i, d in enumerate(self.level_downsamples) if d <= downsample * (1 + 1e-9)]
        return max(finer, key=self.level_downsamples.__getitem__, default=0)

    def read_region(self, location: tuple[int, int], level: int, size: Size) -> Pixels:
        """Return the pixels of a region, ``(h, w, C)`` uint8; background outside the image.

        Args:
            location: left and top in level-0 pixels, rounded to the nearest pixel of ``level``.
            level: level to read; 0 is the full resolution.
            size: width and height in pixels of ``level``.

        The result may be a read-only view of an image in memory: copy it before changing it.
        """
        level_width, level_height = self.level_dimensions[self._check_level(level)]
        (left, top), (width, height) = map(int, location), map(int, size)
        if level:
            downsample = self.level_downsamples[level]
            left, top = round(left / downsample), round(top / downsample)
        if width < 1 or height < 1:
            raise ImageError(
                f"{self.name}: a region of {width} x {height} px is empty: "
                "request at least 1 x 1 px"
            )
        x0, y0 = max(left, 0), max(top, 0)
        x1, y1 = min(left + width, level_width), min(top + height, level_height)
        if (x1 - x0, y1 - y0) == (width, height):
            return self._read(level, x0, y0, width, height)
        out = np.full((height, width, self.channels), self.background, dtype=np.uint8)
        if x1 > x0 and y1 > y0:
            inside = self._read(level, x0, y0, x1 - x0, y1 - y0)
            out[y0 - top : y1 - top, x0 - left : x1 - left] = inside
        return out

    def close(self) -> None:
        with self._lock:
            self._handle = None

    @abstractmethod
    def _open(self) -> Any:
        """Return the handle for reading, a file or a decoded array; called under the lock."""

    @abstractmethod
    def _read(self, level: int, x: int, y: int, width: int, height: int) -> Pixels:
        """Read a region that lies inside the level, in pixels of the level."""

    def _get_handle(self) -> Any:
        handle = self._handle
        if handle is None:
            with self._lock:
                if self._handle is None:
                    self._handle = self._open()
                handle = self._handle
        return handle

    def _check_level(self, level: int) -> int:
        if not 0 <= level < self.level_count:
            raise ImageError(
                f"{self.name} has no level {level}: choose from 0 to {self.level_count - 1}"
            )
        return level

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_handle", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    def __repr__(self) -> str:
        width, height = self.dimensions
        return f"<{type(self).__name__} {self.name}: {width} x {height} px>"


_ALIVE: weakref.WeakSet[Image] = weakref.WeakSet()


def _reopen_in_child() -> None:
    # A forked process shares the file position of its parent, and a lock that another thread of
    # the parent held would never be released. The child gets a new handle and a new lock.
    for image in list(_ALIVE):
        image._reset()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_reopen_in_child)
