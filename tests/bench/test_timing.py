"""Timing of arms, with a fake clock."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from ips.bench import timing
from ips.bench.timing import Clock, Ratio, Timings, run_alternating

CPU = torch.device("cpu")


class FakeTime:
    """Replaces the module ``time``; it only advances on request."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now

    def takes(self, *seconds: float) -> Callable[[], str]:
        """A function whose calls take that long, one after the other."""
        left = list(seconds)

        def run() -> str:
            self.now += left.pop(0)
            return f"{len(left)} left"

        return run


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    fake = FakeTime()
    monkeypatch.setattr(timing, "time", fake)
    return fake


def test_a_clock_measures_laps(fake: FakeTime) -> None:
    clock = Clock(CPU)
    fake.now += 2.5
    assert clock.lap() == 2.5
    fake.now += 0.25
    assert clock.lap() == 0.25


def test_times_and_ratios_of_arms_are_exact(fake: FakeTime) -> None:
    lines: list[str] = []
    arms = {"slow": fake.takes(50, 6, 8, 9), "fast": fake.takes(50, 2, 4, 1)}
    timings = run_alternating(arms, rounds=3, device=CPU, log=lines.append)
    assert timings.seconds == {"slow": [6, 8, 9], "fast": [2, 4, 1]}  # without the warm-up
    assert timings.ratio("fast", to="slow") == Ratio(median=3, min=2, max=9)
    assert timings.ratio("slow", to="fast").median == pytest.approx(1 / 3)
    assert timings.median("slow") == 8
    assert timings.results == {"slow": "3 left", "fast": "3 left"}  # of the warm-up
    assert timings.vram == {}
    assert lines[:3] == [
        "warm-up, slow: 50.00 s",
        "warm-up, fast: 50.00 s",
        "round 1 of 3, slow: 6.00 s",
    ]
    assert len(lines) == 8


def test_arms_run_in_alternating_order() -> None:
    calls: list[str] = []
    arms = {name: lambda name=name: calls.append(name) for name in "AB"}
    run_alternating(arms, rounds=3, device=CPU, log=lambda line: None)
    assert "".join(calls) == "AB" + "AB" + "BA" + "AB"


def test_ratio_pairs_the_rounds() -> None:
    timings: Timings[None] = Timings(
        {"slow": [2.0, 9.0, 4.0], "fast": [1.0, 3.0, 1.0], "cut": [1.0]}, {}, {}
    )
    ratio = timings.ratio("fast", to="slow")
    assert ratio == Ratio(median=3.0, min=2.0, max=4.0)
    assert str(ratio) == "3.00 (2.00–4.00)"
    with pytest.raises(ValueError, match="shorter"):
        timings.ratio("cut", to="slow")
