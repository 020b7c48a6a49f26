"""Memory maps of files, without what was read of them staying in memory."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import numpy.typing as npt


def release_pages(array: npt.NDArray[Any]) -> None:
    """Hand back the pages of the map that ``array`` lies in; a later access brings them in again.

    Every page once touched counts as memory of this process until the map is closed, so reading
    an image through would end with all of it held. Only for maps that nobody writes to: changes
    that are not in the file would be lost.
    """
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
        base.madvise(mmap.MADV_DONTNEED)
