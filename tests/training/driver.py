"""Trains and tests, and disturbs or watches the training.

The argument is a JSON object: ``kill`` the processes with these ranks at a step, or write the
gradient of the first step to ``gradient``.
"""

from __future__ import annotations

import json
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
from tests.ranks import kill_at


def write_gradient(path: str) -> None:
    """Store the gradient before the first update, and the mean of two BatchNorms; then end."""

    def on_before_optimizer_step(self: Learner, optimizer: torch.optim.Optimizer) -> None:
        norm = nn.BatchNorm1d(2)
        assert norm.running_mean is not None
        norm.running_mean.fill_(self.global_rank)
        if self.trainer.world_size > 1:
            average_norms(norm)
        if self.global_rank == 0:
            gradient = {n: p.grad for n, p in self.named_parameters() if p.grad is not None}
            torch.save({"gradient": gradient, "mean": norm.running_mean}, path)
        raise IPSError("the gradient is known")

    Learner.on_before_optimizer_step = on_before_optimizer_step  # type: ignore


def run(config: str, run: str, resume: bool) -> None:
    """Train and test, as `ips train` does, without its figures."""
    parsed = parse_config(read_yaml(Path(config)), source=config)
    processes, console = check_processes(parsed), Console(stderr=True)
    model = train(parsed, Path(run), resume=resume, console=console)
    evaluate(run, model=model, console=console, processes=processes)


def main(task: dict[str, Any]) -> None:
    """Do what the task says."""
    if "kill" in task:
        kill_at(Learner, **task["kill"])
    if "gradient" in task:
        write_gradient(task["gradient"])
    try:
        run(**task["run"])
    except IPSError as error:
        sys.exit(f"ips: {error}")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
