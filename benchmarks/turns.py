"""Measure a training step of several models: their time in turn, their memory in new processes."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ips.bench.peak import peak_memory, run_in_new_process

#: A model and the function that computes its loss, from the name of an arm.
Build = Callable[[str], tuple[nn.Module, Callable[[], Tensor]]]


@dataclass(frozen=True)
class Cost:
    """What a training step takes.

    Attributes:
        wall: seconds of the clock, the least of all rounds.
        busy: seconds of the processor, which other programs change little; the least of all rounds.
        memory: growth of the peak memory during the first step, in bytes.
    """

    wall: float
    busy: float
    memory: int


def compare(
    arms: Iterable[str], build: Build, *, rounds: int, limit: float
) -> dict[str, Cost | None]:
    """Measure all arms.

    Args:
        arms: their names.
        build: builds the model of an arm; must be picklable.
        rounds: timed steps of each arm, in alternating order (A B, B A, ...), after an untimed one.
        limit: memory limit in bytes of the process that measures the memory of an arm.

    Returns:
        Costs of each arm; None if it needs more memory than the limit.
    """
    memory = {name: run_in_new_process(_peak, name, build, limit) for name in arms}
    steps = {name: training_step(*build(name)) for name, peak in memory.items() if peak is not None}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in steps}
    for turn in range(rounds + 1):
        for name in steps if turn % 2 == 0 else reversed(list(steps)):
            start, used = time.perf_counter(), time.process_time()
            steps[name]()
            seconds = time.perf_counter() - start, time.process_time() - used
            if turn:
                found[name].append(seconds)
    return {name: _least(found.get(name), peak) for name, peak in memory.items()}


def training_step(net: nn.Module, loss: Callable[[], Tensor]) -> Callable[[], None]:
    """Forward pass, gradients and an update of the weights."""
    optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad])

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


def _peak(name: str, build: Build, limit: float) -> int | None:
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_DATA, (int(limit), int(limit)))
    step = training_step(*build(name))
    try:
        return peak_memory(step).above
    except (MemoryError, RuntimeError) as error:
        if "allocate memory" in str(error) or isinstance(error, MemoryError):
            return None
        raise


def _least(found: list[tuple[float, float]] | None, peak: int | None) -> Cost | None:
    if not found or peak is None:
        return None
    wall, busy = (min(values) for values in zip(*found, strict=True))
    return Cost(wall, busy, peak)
