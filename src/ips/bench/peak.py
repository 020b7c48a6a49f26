"""Peak memory of a piece of work, in a process of its own that has done nothing before."""

from __future__ import annotations

import multiprocessing
import resource
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, TypeVar

from ips.errors import IPSError

P = ParamSpec("P")
Result = TypeVar("Result")

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Peak:
    """Resident bytes of a process.

    Attributes:
        before: when the work began.
        peak: the most there ever was from then on.
    """

    before: int
    peak: int

    @property
    def above(self) -> int:
        """What the work itself took."""
        return self.peak - self.before


def peak_of(work: Callable[[], object]) -> Peak:
    """Run ``work`` in this process and see how high it gets."""
    before = _resident("VmRSS")
    if _CLEAR.exists():
        _CLEAR.write_text("5")  # the high-water mark starts again from here
    work()
    # The kernel counts in batches per thread: its mark may lie a little below what it said before.
    return Peak(before=before, peak=max(before, _resident("VmHWM")))


def fresh(work: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
    """``work`` in a new process; what it is and what it returns must be picklable."""
    context = multiprocessing.get_context("spawn")  # a fork would start with our memory
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
        try:
            return pool.submit(work, *args, **kwargs).result()
        except BrokenProcessPool as error:
            raise IPSError(
                "the measuring process was ended from outside, most likely for want of memory: "
                "take smaller images or a smaller batch"
            ) from error


def _resident(key: str) -> int:
    """A line of the process's status in bytes; without /proc the peak so far stands for all."""
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
