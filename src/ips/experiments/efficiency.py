"""Time and memory of a training step, without training: the efficiency columns of the tables.

As in the paper (Appendix D.7), the first and the last step are left out, and loading is not timed
with ``select.load=eager``. With ``sequential`` and ``lazy``, a step includes reading; with CNN and
DPS, it includes assembling the images. Memory is the allocator's peak on a GPU. On a CPU, it is the
peak of a new process for each arm.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ips.bench.peak import peak_memory, run_in_new_process
from ips.bench.timing import Clock
from ips.config import Config, MegapixelMNISTConfig, RoadSignsConfig, TrafficSignsConfig
from ips.config_io import parse_config
from ips.training import build_data, build_model, build_tasks, resolve
from ips.training.module import freeze_norms, read_batch, total_loss


@dataclass(frozen=True)
class Cost:
    """Memory and mean times of one training step.

    Attributes:
        memory_gb: peak memory of the GPU allocator, or of the process on a CPU.
        select_ms: time of the select step, None if the method has none.
        rest_ms: time of everything else.
    """

    memory_gb: float
    select_ms: float | None
    rest_ms: float

    @property
    def step_ms(self) -> float:
        return (self.select_ms or 0.0) + self.rest_ms


def measure_cost(config: Config, *, steps: int = 4) -> Cost:
    """Measure ``steps`` training steps in a new process; the first and the last are left out."""
    return run_in_new_process(measure_here, config.model_dump(mode="json"), steps)


def measure_here(values: dict[str, Any], steps: int) -> Cost:
    """Run `measure_cost` in this process; ``values`` is the config as a dict."""
    config = without_downloads(parse_config(values, source="experiment"))
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
    batch, load = config.train.batch, config.select.load
    select: list[float] = []
    rest: list[float] = []

    def run() -> None:
        for step in range(steps):
            indices = [(step * batch + b) % len(data.train) for b in range(batch)]
            sources, labels = read_batch(data.train, indices, load=load)
            labels = {name: label.to(device) for name, label in labels.items()}
            if load == "eager":  # loading is not timed
                sources = net.preload(sources)
            optimizer.zero_grad()
            clock = Clock(device)
            with autocast:
                selected = None
                if net.needs_scoring:
                    selected = net.select_for_training(sources, load=load, seed=step)
                    select.append(clock.lap())
                if selected is None:
                    output = net.forward_train(sources, load=load, seed=step)
                else:
                    output = net(selected.patches, selected.selection)
                loss = total_loss(net, tasks, output, labels)
            loss.backward()
            rest.append(clock.lap())
            optimizer.step()

    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        run()
        peak = torch.cuda.memory_stats()["allocated_bytes.all.peak"]
    else:
        peak = peak_memory(run).peak
    return Cost(
        memory_gb=peak / 2**30,
        select_ms=1000 * statistics.fmean(select[1:-1]) if select else None,
        rest_ms=1000 * statistics.fmean(rest[1:-1]),
    )


def without_downloads(config: Config) -> Config:
    """Remove the need for downloads; the cost of a step stays the same.

    Synthetic road scenes of the same size replace missing photographs, and the embedded digits
    those of MNIST. No weights are loaded.
    """
    data, encoder = config.data, config.encoder.model_copy(update={"weights": Path("none")})
    if isinstance(data, TrafficSignsConfig) and not data.folder.is_dir():
        data = RoadSignsConfig(width=1600, height=1200, train=64, test=1, seed=data.seed)
    elif isinstance(data, MegapixelMNISTConfig) and data.digits and not data.digits.is_dir():
        data = data.model_copy(update={"digits": None})
    return config.model_copy(update={"data": data, "encoder": encoder})
