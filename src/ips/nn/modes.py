"""Evaluation mode without gradients, as a context manager."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def evaluating(*modules: nn.Module) -> Iterator[None]:
    """Run in evaluation and no-gradient mode, then restore the mode of every sub-module.

    ``module.train(mode)`` would set one mode for all sub-modules, and so unfreeze a BatchNorm that
    had been set to evaluation mode. The modes are also restored after an exception.
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
        # Weights that autocast has converted here have no gradients, so drop them.
        torch.clear_autocast_cache()
