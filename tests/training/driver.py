"""Runs `ips` like ``python -m ips``, and disturbs or watches its training.

The first argument is a JSON object: ``kill`` a process with one of these ranks at a step, or write
the gradient of the first step to ``gradient``. Lightning starts the processes of the other devices
with the same command line.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import torch
from torch import nn

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
            average_norms(norm)
            if self.global_rank == 0:
                gradient = {n: p.grad for n, p in self.named_parameters() if p.grad is not None}
                torch.save({"gradient": gradient, "mean": norm.running_mean}, path)
        ordinary(self, optimizer)

    Learner.on_before_optimizer_step = on_before_optimizer_step  # type: ignore


if __name__ == "__main__":
    from ips.cli import app

    task = json.loads(sys.argv[1])
    if "kill" in task:
        kill(**task["kill"])
    if "gradient" in task:
        write_gradient(task["gradient"])
    app(sys.argv[2:])
