"""Costs of rows that do not fit into memory, computed from smaller samples.

A method that trains on all N patches of a sample (DeepMIL) needs memory and time that are linear in
N. Where the whole sample would exceed a limit, a tenth and a fifth of it are measured, and a line
through the two gives the cost of the whole.
"""

from __future__ import annotations

from collections.abc import Callable

from ips.config import Config
from ips.experiments.efficiency import Cost

_FIFTH, _TENTH = 5, 10

Measure = Callable[[Config], Cost]


def measure_or_compute(config: Config, measure: Measure, *, limit_gb: float) -> tuple[Cost, bool]:
    """Measure the cost of a config, or compute it if it would need more than ``limit_gb``.

    Returns:
        The cost, and whether it was computed.
    """
    N = config.patches.sample
    linear = config.select.keep is None
    if N is None or N < _TENTH or not linear:
        return measure(config), False
    fifth = measure(_with_sample(config, N // _FIFTH))
    if _FIFTH * fifth.memory_gb <= limit_gb:  # at least as much as the whole needs
        return measure(config), False
    tenth = measure(_with_sample(config, N // _TENTH))
    return extrapolate((N // _TENTH, tenth), (N // _FIFTH, fifth), N), True


def extrapolate(small: tuple[int, Cost], large: tuple[int, Cost], N: int) -> Cost:
    """The cost at N patches on the line through two measured ones."""
    (n, first), (m, second) = small, large
    share = (N - n) / (m - n)

    def on_line(a: float, b: float) -> float:
        return a + share * (b - a)

    select_ms = None
    if first.select_ms is not None and second.select_ms is not None:
        select_ms = on_line(first.select_ms, second.select_ms)
    return Cost(
        memory_gb=on_line(first.memory_gb, second.memory_gb),
        select_ms=select_ms,
        rest_ms=on_line(first.rest_ms, second.rest_ms),
    )


def _with_sample(config: Config, count: int) -> Config:
    patches = config.patches.model_copy(update={"sample": count})
    return config.model_copy(update={"patches": patches})
