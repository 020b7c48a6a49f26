"""Evaluation mode without gradients, as a context manager that leaves no trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def evaluating(*modules: nn.Module) -> Iterator[None]:
    """Run in evaluation and no-gradient mode, then put back every sub-module's own flag.

    ``module.train(was)`` would set one flag for the whole tree and so unfreeze a BatchNorm that
    its owner had put in evaluation mode; here each sub-module gets its own flag back, also when
    something raises inside.
    """
    flags = [(part, part.training) for module in modules for part in module.modules()]
    try:
        for part, _ in flags:
            part.training = False
        with torch.no_grad():
            yield
    finally:
        for part, flag in flags:
            part.training = flag
        # Weights cast under autocast in here have no graph; the training pass must cast its own.
        torch.clear_autocast_cache()
