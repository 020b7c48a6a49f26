"""Arms measured in turns, so that whatever else the machine does meets all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

Result = TypeVar("Result")
Log = Callable[[str], None]


@dataclass(frozen=True)
class Ratio:
    """Of paired times: how many times longer the first arm took than the second."""

    median: float
    min: float
    max: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.min:.2f}–{self.max:.2f})"


@dataclass(frozen=True)
class Rounds(Generic[Result]):
    """What was measured.

    Attributes:
        seconds: per arm, one per round.
        vram: per arm, peak bytes on the GPU; empty without one.
        first: per arm, what its warm-up returned.
    """

    seconds: dict[str, list[float]]
    vram: dict[str, int]
    first: dict[str, Result]

    def ratio(self, arm: str, *, to: str) -> Ratio:
        """How many times longer ``to`` takes than ``arm``, round by round."""
        return paired(self.seconds[to], self.seconds[arm])

    def median(self, arm: str) -> float:
        """Seconds of the middle round."""
        return statistics.median(self.seconds[arm])


def paired(slow: list[float], fast: list[float]) -> Ratio:
    """Ratios of times that were taken in the same rounds.

    >>> paired([4.0, 6.0, 9.0], [2.0, 2.0, 3.0])
    Ratio(median=3.0, min=2.0, max=3.0)
    """
    ratios = [a / b for a, b in zip(slow, fast, strict=True)]
    return Ratio(median=statistics.median(ratios), min=min(ratios), max=max(ratios))


def in_turns(
    arms: Mapping[str, Callable[[], Result]], *, rounds: int, device: torch.device, log: Log
) -> Rounds[Result]:
    """Each arm once untimed, then ``rounds`` times A B, B A, A B and so on."""
    first, vram = {}, {}
    for name, arm in arms.items():
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        seconds, first[name] = timed(arm, device)
        if device.type == "cuda":
            vram[name] = torch.cuda.max_memory_allocated(device)
        log(f"warm-up, {name}: {seconds:.2f} s")
    taken: dict[str, list[float]] = {name: [] for name in arms}
    for turn in range(rounds):
        for name in arms if turn % 2 == 0 else reversed(list(arms)):
            seconds, _ = timed(arms[name], device)
            taken[name].append(seconds)
            log(f"round {turn + 1} of {rounds}, {name}: {seconds:.2f} s")
    return Rounds(seconds=taken, vram=vram, first=first)


def timed(arm: Callable[[], Result], device: torch.device) -> tuple[float, Result]:
    """Seconds that ``arm`` takes, as the GPU's own clock has them where there is one."""
    if device.type != "cuda":
        start = time.perf_counter()
        result = arm()
        return time.perf_counter() - start, result
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    result = arm()
    end.record()
    torch.cuda.synchronize(device)
    return begin.elapsed_time(end) / 1000, result
