"""Run arms alternately, so that other load on the machine affects all of them equally."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch

from ips.devices import synchronize

Result = TypeVar("Result")
Log = Callable[[str], None]


def ignore(message: str) -> None:
    """Discard a message: the default of ``log``."""


class Clock:
    """Measures laps: CUDA events on an NVIDIA GPU, otherwise wall time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._last = self._now()

    def lap(self) -> float:
        """Seconds since the previous call, or since the clock was made."""
        last, self._last = self._last, self._now()
        if self._device.type != "cuda":
            return float(self._last - last)
        synchronize(self._device)
        return float(last.elapsed_time(self._last)) / 1000

    def _now(self) -> Any:
        if self._device.type != "cuda":
            synchronize(self._device)
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


@dataclass(frozen=True)
class Ratio:
    """How many times longer one arm takes than another, over paired rounds."""

    median: float
    min: float
    max: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.min:.2f}–{self.max:.2f})"


@dataclass(frozen=True)
class Timings(Generic[Result]):
    """Times of several arms.

    Attributes:
        seconds: per arm, one value per round.
        vram: per arm, peak bytes on the GPU; empty on a CPU.
        results: per arm, the return value of its warm-up.
    """

    seconds: dict[str, list[float]]
    vram: dict[str, int]
    results: dict[str, Result]

    def ratio(self, arm: str, *, to: str) -> Ratio:
        """How many times longer ``to`` takes than ``arm``, round by round."""
        pairs = zip(self.seconds[to], self.seconds[arm], strict=True)
        ratios = [slow / fast for slow, fast in pairs]
        return Ratio(median=statistics.median(ratios), min=min(ratios), max=max(ratios))

    def median(self, arm: str) -> float:
        """Median seconds of a round."""
        return statistics.median(self.seconds[arm])


def run_alternating(
    arms: Mapping[str, Callable[[], Result]], *, rounds: int, device: torch.device, log: Log
) -> Timings[Result]:
    """Run each arm once as a warm-up, then in ``rounds`` timed rounds: A B, B A, A B, ..."""
    vram, results = {}, {}
    for name, arm in arms.items():
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        clock = Clock(device)
        results[name] = arm()
        log(f"warm-up, {name}: {clock.lap():.2f} s")
        if device.type == "cuda":
            vram[name] = torch.cuda.max_memory_allocated(device)
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for turn in range(rounds):
        for name in arms if turn % 2 == 0 else reversed(list(arms)):
            clock = Clock(device)
            arms[name]()
            seconds[name].append(clock.lap())
            log(f"round {turn + 1} of {rounds}, {name}: {seconds[name][-1]:.2f} s")
    return Timings(seconds=seconds, vram=vram, results=results)
