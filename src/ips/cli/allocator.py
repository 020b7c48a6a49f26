"""Memory setting of the process. Only the command line changes it, never the library."""

from __future__ import annotations

import ctypes
import sys

# Parameters of mallopt, from glibc's malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3


def keep_freed_memory() -> None:
    """Let glibc reuse large blocks of memory, which every training step allocates and frees.

    By default, glibc maps each large block anew, and clearing its pages takes a fifth of a
    training step of a small network on a CPU. On other systems, this does nothing.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    # Older versions of glibc accept at most 32 MB. If neither value is accepted, the other
    # parameters stay as they are: setting any of them turns off glibc's dynamic thresholds.
    if mallopt is not None and any(mallopt(_MMAP_THRESHOLD, n) for n in (2**31 - 1, 2**25)):
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(_TOP_PAD, 2**26)
