"""Memory maps of files that do not keep in memory what was read."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import numpy.typing as npt


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
