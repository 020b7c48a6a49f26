"""Trains and tests, and disturbs or watches the training.

The argument is a JSON object: ``kill`` a process with one of these ranks at a step, or write the
gradient of the first step to ``gradient``. Lightning starts the processes of the other devices
with the same command line.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import nn

from ips.config_io import parse_config, read_yaml
from ips.errors import IPSError
from ips.training import check_processes, evaluate, train
from ips.training.module import Learner
from ips.training.processes import average_norms


def kill(step: int, ranks: list[int]) -> None:
    """Kill the processes with these ranks in a training step."""
    ordinary = Learner.training_step

    def training_step(self: Learner, batch: Any, batch_idx: int) -> torch.Tensor:
        if self.global_step == step and self.global_rank in ranks:
            os.kill(os.getpid(), signal.SIGKILL)
        return ordinary(self, batch, batch_idx)

    Learner.training_step = training_step  # type: ignore[method-assign]


def write_gradient(path: str) -> None:
    """Store the gradient before the first update, and the mean of two BatchNorms."""
    ordinary = Learner.on_before_optimizer_step

    def on_before_optimizer_step(self: Learner, optimizer: torch.optim.Optimizer) -> None:
        if self.global_step == 0:
            norm = nn.BatchNorm1d(2)
            assert norm.running_mean is not None
            norm.running_mean.fill_(self.global_rank)
            if self.trainer.world_size > 1:
                average_norms(norm)
            if self.global_rank == 0:
                gradient = {n: p.grad for n, p in self.named_parameters() if p.grad is not None}
                torch.save({"gradient": gradient, "mean": norm.running_mean}, path)
        ordinary(self, optimizer)

    Learner.on_before_optimizer_step = on_before_optimizer_step  # type: ignore


def run(config: str, run: str, resume: bool) -> None:
    """Train and test, as `ips train` does, without its figures."""
    parsed = parse_config(read_yaml(Path(config)), source=config)
    processes, console = check_processes(parsed), Console(stderr=True)
    model = train(parsed, Path(run), resume=resume, console=console)
    evaluate(run, model=model, console=console, processes=processes)


if __name__ == "__main__":
    task = json.loads(sys.argv[1])
    if "kill" in task:
        kill(**task["kill"])
    if "gradient" in task:
        write_gradient(task["gradient"])
    try:
        run(**task["run"])
    except IPSError as error:
        sys.exit(f"ips: {error}")
