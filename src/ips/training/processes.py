"""The processes that train together, one for each device: how many, which is this, what they say.

Without torchrun or SLURM, the first process starts those of the other devices with the same command
line (Lightning). Everything that is small enough to be known by all is exchanged with `gather`, so
that all processes count and decide the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from ips.config import Config
from ips.devices import pick_device
from ips.errors import ConfigError, IPSError
from ips.locks import started_together

TIMEOUT = timedelta(hours=2)
"""How long a process waits for the others; a step on gigapixel images can take many minutes."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class Processes:
    """How many processes train together.

    Attributes:
        devices: number of GPUs of each machine, or of processes without a GPU.
        nodes: number of machines.
    """

    devices: int = 1
    nodes: int = 1

    @classmethod
    def of(cls, config: Config) -> Processes:
        """The processes that a config asks for."""
        return cls(config.train.devices, config.train.nodes)

    @property
    def count(self) -> int:
        return self.devices * self.nodes

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files and prints."""
        return self.count == 1 or _number() == 0

    def check(self, *, devices: str, nodes: str | None = None) -> None:
        """Check that as many processes were started as the settings say.

        Args:
            devices: name of the setting, such as ``train.devices``.
            nodes: the same for the machines; None if there is no such setting.
        """
        started = started_together()
        equals = " " if devices.startswith("--") else "="
        settings = f"{devices}{equals}{self.devices}"
        if nodes is not None and self.nodes > 1:
            settings += f" and {nodes}{equals}{self.nodes}"
        if self.count == 1:
            if started is not None and started[1] > 1 and _by_torchrun():
                raise ConfigError(
                    f"{settings} but torchrun started {started[1]} processes: start the command "
                    f"once without torchrun, or set {devices} to the processes of each machine"
                )
            return
        if started is not None and started[1] != self.count:
            raise ConfigError(
                f"{settings} but torchrun or SLURM started {started[1]} processes: start the "
                "command once, or one process for each device"
            )
        if started is None and self.nodes > 1:
            raise ConfigError(
                f"{settings} but this is a single process: start one for each device with torchrun "
                "or srun"
            )
        device = pick_device().type
        if device == "mps":
            raise ConfigError(f"{settings} but Apple's GPU trains alone: use one, or --device cpu")
        if device == "cuda" and self.devices > (gpus := torch.cuda.device_count()):
            raise ConfigError(f"{settings} but there are only {gpus} GPUs: use at most {gpus}")

    def environment(self) -> Any:
        """The Lightning environment that fits the way in which the processes were started."""
        # Imported here, since predicting does not need Lightning.
        from lightning.fabric.plugins.environments.lightning import LightningEnvironment
        from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
        from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment

        if self.count == 1 or started_together() is None:
            return LightningEnvironment()
        return TorchElasticEnvironment() if _by_torchrun() else SLURMEnvironment(auto_requeue=False)


def _by_torchrun() -> bool:
    return "RANK" in os.environ


def _number() -> int:
    """The number of this process, counted from 0, before there is a process group."""
    for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID"):  # Lightning sets LOCAL_RANK alone
        if (value := os.environ.get(name, "")).isdecimal():
            return int(value)
    return 0


def gather(value: _T) -> list[_T]:
    """The values of all processes, in their order. Each must call this; tensors are on a CPU."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return [value]
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value, group=_cpu_group(dist.group.WORLD))
    return values


@cache
def _cpu_group(world: Any) -> Any:
    """A group that exchanges objects without a GPU."""
    return (
        world
        if dist.get_backend(world) == "gloo"
        else dist.new_group(backend="gloo", timeout=TIMEOUT)
    )


@contextmanager
def naming_lost_process() -> Iterator[None]:
    """Say in one sentence that another process has died, instead of an error of the network."""
    try:
        yield
    except RuntimeError as error:
        lost = isinstance(error, dist.DistError) or "gloo/transport" in str(error)
        if not lost:
            raise
        raise IPSError(
            "another process of this training has ended, so this one cannot go on: look for its "
            "last words, then continue with --resume"
        ) from error


def average_norms(module: torch.nn.Module) -> None:
    """Give the BatchNorms of all processes the mean of their statistics, if they are learning."""
    found = [
        statistic
        for part in module.modules()
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm) and part.training
        for statistic in (part.running_mean, part.running_var)
        if statistic is not None
    ]
    if not found:
        return
    flat = torch.cat([statistic.flatten() for statistic in found]) / dist.get_world_size()
    dist.all_reduce(flat)
    for statistic, mean in zip(found, flat.split([s.numel() for s in found]), strict=True):
        statistic.copy_(mean.view_as(statistic))
