"""Processes that train together, with the environment that torchrun or SLURM would give them.

They are forked from a process that has loaded PyTorch, which saves seconds for each of them.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from ips.training.harness import BaseLearner

Launcher = Callable[[int, int, int], dict[str, str]]
"""Environment of a process, from its number, the number of processes, and a free port."""

_MOST_SECONDS = 300  # a process that hangs is killed, so that the test fails


def torchrun(rank: int, world: int, port: int) -> dict[str, str]:
    """What torchrun sets on one machine."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "test",
    }


def slurm(rank: int, world: int, port: int) -> dict[str, str]:
    """What srun sets on one machine; the port is that of the cluster's settings, not of the job."""
    return {
        "SLURM_JOB_ID": "123",
        "SLURM_JOB_NAME": "training",
        "SLURM_NODELIST": "localhost",
        "SLURM_NODEID": "0",
        "SLURM_NNODES": "1",
        "SLURM_NTASKS": str(world),
        "SLURM_NTASKS_PER_NODE": str(world),
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank),
        "MASTER_PORT": str(port),
    }


def alone(rank: int, world: int, port: int) -> dict[str, str]:
    """The environment of a process that nobody else started."""
    return {}


@dataclass(frozen=True)
class Ended:
    """A process that has ended: its exit code, negative for a signal, and its stderr."""

    code: int | None
    err: str


def fork_server() -> ForkServerContext:
    """Starts processes in which libraries are loaded, and nothing else is in memory."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["ips.training.run", "ips.pretraining", "ips.cli", "ips.bench.features"]
    )
    return context


def run_ranks(
    launcher: Launcher, function: Callable[..., None], *arguments: object, world: int = 2
) -> list[Ended]:
    """Call a function in several processes, and wait for all of them."""
    context = fork_server()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with TemporaryDirectory() as folder:
        processes = []
        for rank in range(world):
            values, log = launcher(rank, world, port), Path(folder) / str(rank)
            process = context.Process(target=_begin, args=(values, log, function, arguments))
            process.start()
            processes.append((process, log))
        ended = []
        for process, log in processes:
            process.join(_MOST_SECONDS)
            process.kill()
            process.join()
            ended.append(Ended(process.exitcode, log.read_text() if log.exists() else ""))
    return ended


def _begin(
    values: dict[str, str], log: Path, function: Callable[..., None], arguments: tuple[Any, ...]
) -> None:
    os.environ.update(values)
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT), 2)
    torch.set_num_threads(1)  # as the tests: with more, sums are rounded otherwise
    function(*arguments)


def kill_at(learner: type[BaseLearner], step: int, ranks: list[int]) -> None:
    """Let the processes with these numbers kill themselves in a training step."""
    ordinary = learner.training_step

    def training_step(self: BaseLearner, batch: Any, batch_idx: int) -> Any:
        if self.global_step == step and self.global_rank in ranks:
            os.kill(os.getpid(), signal.SIGKILL)
        return ordinary(self, batch, batch_idx)

    learner.training_step = training_step  # type: ignore
