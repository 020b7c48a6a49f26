"""Time and memory of a training step, without training: the efficiency columns of the tables.

As in Appendix D.7 the first and the last step are left out, and loading is not counted where all
of a batch is loaded at once (``select.load=eager``); ``sequential`` and ``lazy`` read in the middle
of a step, and CNN and DPS put their images together in it. On a GPU times come from CUDA events and
memory is the allocator's peak; on a CPU they are wall time and the peak of the process, which is
one of its own for every arm.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ips.bench.peak import peak_memory, run_in_new_process
from ips.config import Config, RoadSignsConfig, TrafficSignsConfig, parse_config
from ips.models.selecting import SelectingNet
from ips.training import build_data, build_model, build_tasks, resolve
from ips.training.loading import collate
from ips.training.module import freeze_norms, total_loss


@dataclass(frozen=True)
class Cost:
    """Of one training step; times are means.

    Attributes:
        memory_gb: peak, of the process on a CPU.
        select_ms: of the select step, None where a method has none.
        rest_ms: of everything else.
    """

    memory_gb: float
    select_ms: float | None
    rest_ms: float

    @property
    def step_ms(self) -> float:
        """The whole step."""
        return (self.select_ms or 0.0) + self.rest_ms


def cost_of(config: Config, *, steps: int = 4) -> Cost:
    """Measure ``steps`` training steps in another process; the first and the last are left out."""
    return run_in_new_process(measure, config.model_dump(mode="json"), steps)


def measure(values: dict[str, Any], steps: int) -> Cost:
    """The same in this process."""
    config = stand_in(parse_config(values, source="experiment"))
    data = build_data(config)
    config = resolve(config, data)
    torch.manual_seed(config.train.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = build_model(config).to(device).train()
    if config.encoder.freeze_norm:
        freeze_norms(net.encoder)
    half = {"16-mixed": torch.float16, "bf16-mixed": torch.bfloat16}.get(config.train.precision)
    autocast = torch.autocast(device.type, dtype=half, enabled=half is not None)
    optimizer = torch.optim.AdamW(net.parameters(), lr=config.train.lr)
    tasks = build_tasks(config.tasks)
    clock = _CudaClock() if device.type == "cuda" else _WallClock()
    batch, load = config.train.batch, config.select.load
    select_ms: list[float] = []
    rest_ms: list[float] = []

    def run() -> None:
        for step in range(steps):
            numbers = [(step * batch + b) % len(data.train) for b in range(batch)]
            sources, labels = collate([data.train[n] for n in numbers], load=load)
            labels = {name: label.to(device) for name, label in labels.items()}
            if isinstance(net, SelectingNet) and load == "eager":  # copied before the clock starts
                sources = [net.resident(source) for source in sources]
            optimizer.zero_grad()
            clock.start()
            with autocast:
                if isinstance(net, SelectingNet) and net.looks:
                    chosen = net.choose(sources, load=load, seed=step)
                    select_ms.append(clock.lap())
                    output = net(chosen.patches, chosen.selection)
                else:
                    output = net.learn(sources, load=load, seed=step)
                loss = total_loss(net, tasks, output, labels)
            loss.backward()
            rest_ms.append(clock.lap())
            optimizer.step()

    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        run()
        peak = torch.cuda.memory_stats()["allocated_bytes.all.peak"] / 2**30
    else:
        peak = peak_memory(run).peak / 2**30
    inner = slice(1, -1)
    return Cost(
        memory_gb=peak,
        select_ms=statistics.fmean(select_ms[inner]) if select_ms else None,
        rest_ms=statistics.fmean(rest_ms[inner]),
    )


def stand_in(config: Config) -> Config:
    """What a step costs does not depend on what the images show, nor on where weights started.

    Drawn road scenes of the same size stand in for photographs that are not there, and weights
    are not fetched.
    """
    data, encoder = config.data, config.encoder.model_copy(update={"weights": Path("none")})
    if isinstance(data, TrafficSignsConfig) and not data.folder.is_dir():
        data = RoadSignsConfig(width=1600, height=1200, train=64, test=1, seed=data.seed)
    return config.model_copy(update={"data": data, "encoder": encoder})


class _WallClock:
    def start(self) -> None:
        self._last = time.perf_counter()

    def lap(self) -> float:
        """Milliseconds since the last call."""
        now = time.perf_counter()
        passed, self._last = now - self._last, now
        return 1000 * passed


class _CudaClock:
    def __init__(self) -> None:
        self._event: Callable[[], Any] = lambda: torch.cuda.Event(enable_timing=True)

    def start(self) -> None:
        self._last = self._event()
        self._last.record()

    def lap(self) -> float:
        """Milliseconds of the GPU since the last call."""
        now = self._event()
        now.record()
        torch.cuda.synchronize()
        passed: float = self._last.elapsed_time(now)
        self._last = now
        return passed
