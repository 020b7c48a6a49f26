"""Peak memory of a function, in a new process whose memory is still clean."""

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
    """Resident memory of a process in bytes.

    Attributes:
        before: memory when the function was called.
        peak: highest memory from then on.
    """

    before: int
    peak: int

    @property
    def above(self) -> int:
        """Memory that the function itself needed."""
        return self.peak - self.before


def peak_memory(function: Callable[[], object]) -> Peak:
    """Call ``function`` in this process and measure the peak of its memory."""
    before = _resident("VmRSS")
    if _CLEAR.exists():
        _CLEAR.write_text("5")  # resets the high-water mark
    function()
    # The kernel updates its counters in batches: the mark may be a little below ``before``.
    return Peak(before=before, peak=max(before, _resident("VmHWM")))


def run_in_new_process(function: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
    """Call ``function`` in a new process; the function, arguments and result must be picklable."""
    context = multiprocessing.get_context("spawn")  # a fork would inherit our memory
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
        try:
            return pool.submit(function, *args, **kwargs).result()
        except BrokenProcessPool as error:
            raise IPSError(
                "the measuring process was killed, most likely because it ran out of memory: use "
                "smaller images or a smaller batch"
            ) from error


def _resident(key: str) -> int:
    """A line of the process's status, in bytes; without /proc, always the peak so far."""
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
