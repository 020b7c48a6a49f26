"""Time and memory of a training step, without training: the efficiency columns of the tables.

Time is that of a forward and backward pass without loading data, as in the paper (Appendix D.7).
The images of a step are in host memory before the clock starts, whatever ``select.load`` is. With
``eager``, and with methods that do not score patches (CNN, DPS, DeepMIL, RPS), they are on the
device. The first and the last step are left out. On a CPU, ``lazy`` finds the images in memory and
does nearly the same as ``eager``.

Memory is measured before, in as many other steps, with images that are read when they are needed,
as in training. With images in host memory, the peak of a process on a CPU would contain the whole
batch, which ``sequential`` and ``lazy`` never hold on a GPU. The peak is that of the allocator on a
GPU, and that of a new process for each arm on a CPU.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from ips.bench.peak import peak_memory, run_in_new_process
from ips.bench.timing import Clock
from ips.config import Config, MegapixelMNISTConfig, RoadSignsConfig, TrafficSignsConfig
from ips.config_io import parse_config
from ips.devices import pick_device
from ips.errors import ConfigError
from ips.models import Net
from ips.patches import MemoryPatches, PatchSource, in_memory
from ips.tasks import build_tasks
from ips.training import build_data, build_model, resolve
from ips.training.batches import read_batch
from ips.training.data import DataSet
from ips.training.losses import total_loss
from ips.training.module import freeze_norms

Steps = int | Literal["epoch"]


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


def measure_cost(config: Config, *, steps: Steps = 4) -> Cost:
    """Measure ``steps`` training steps in a new process; the first and the last are left out."""
    return run_in_new_process(measure_here, config.model_dump(mode="json"), steps)


def measure_here(values: dict[str, Any], steps: Steps) -> Cost:
    """Run `measure_cost` in this process; ``values`` is the config as a dict."""
    config = without_downloads(parse_config(values, source="experiment"))
    data = build_data(config)
    count = len(data.train) // config.train.batch if steps == "epoch" else steps
    if count < 3:
        raise ConfigError(
            f"an epoch of {len(data.train)} images has fewer than 3 steps of {config.train.batch} "
            "images: use a smaller train.batch, or give a number of steps"
        )
    config = resolve(config, data)
    torch.manual_seed(config.train.seed)
    device = pick_device()
    net = build_model(config).to(device).train()
    if config.encoder.freeze_norm:
        freeze_norms(net.encoder)
    run = partial(_run_steps, config, data.train, net, count)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        run(loaded=False)
        peak = torch.cuda.memory_stats()["allocated_bytes.all.peak"]
    else:
        peak = peak_memory(lambda: run(loaded=False)).peak
    select, rest = zip(*run(loaded=True)[1:-1], strict=True)
    return Cost(
        memory_gb=peak / 2**30,
        select_ms=1000 * statistics.fmean(select) if net.needs_scoring else None,
        rest_ms=1000 * statistics.fmean(rest),
    )


def _run_steps(
    config: Config, data: DataSet, net: Net, steps: int, *, loaded: bool
) -> list[tuple[float, float]]:
    """Run training steps; return the seconds of each for selection and for the rest.

    With ``loaded``, the images are in memory before the clock starts.
    """
    batch, load = config.train.batch, config.select.load
    half = {"16-mixed": torch.float16, "bf16-mixed": torch.bfloat16}.get(config.train.precision)
    autocast = torch.autocast(net.device.type, dtype=half, enabled=half is not None)
    assert config.train.lr is not None
    optimizer = torch.optim.AdamW(net.parameters(), lr=config.train.lr)
    tasks = build_tasks(config.tasks)
    seconds = []
    for step in range(steps):
        numbers = [(step * batch + b) % len(data) for b in range(batch)]
        sources, labels = read_batch(data, numbers, load=load)[:2]
        labels = {name: label.to(net.device) for name, label in labels.items()}
        if loaded:
            images = _load(sources)
            on_device = load == "eager" or not net.needs_scoring
            sources = net.preload(images) if on_device else [*images]
        optimizer.zero_grad()
        clock = Clock(net.device)
        select = 0.0
        with autocast:
            selected = None
            if net.needs_scoring:
                selected = net.select_for_training(sources, load=load, seed=step)
                select = clock.lap()
            if selected is None:
                output = net.forward_train(sources, load=load, seed=step)
            else:
                output = net(selected.patches, selected.selection)
            loss = total_loss(net, tasks, output, labels)
        loss.backward()
        seconds.append((select, clock.lap()))
        optimizer.step()
    return seconds


def _load(sources: Sequence[PatchSource]) -> list[MemoryPatches]:
    """Read all patches; equal images share their memory, as those of the stand-in for slides."""
    images: list[MemoryPatches] = []
    for source in sources:
        image = in_memory(source)
        source.close()
        if images and torch.equal(images[-1].patches, image.patches):
            patches, extent = images[-1].patches, source.extent
            image = MemoryPatches(patches, coords=image.coords, extent=extent, name=source.name)
        images.append(image)
    return images


def without_downloads(config: Config) -> Config:
    """Remove the need for downloads; the cost of a step stays the same.

    Synthetic road scenes of the same size replace missing photographs, and the embedded digits
    those of MNIST. No weights are loaded.
    """
    data, encoder = config.data, config.encoder.model_copy(update={"weights": Path("none")})
    if isinstance(data, TrafficSignsConfig) and not data.folder.is_dir():
        data = RoadSignsConfig(width=1600, height=1200, train=747, test=1, seed=data.seed)
    elif isinstance(data, MegapixelMNISTConfig) and data.digits and not data.digits.is_dir():
        data = data.model_copy(update={"digits": None})
    return config.model_copy(update={"data": data, "encoder": encoder})
