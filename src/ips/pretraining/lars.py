"""LARS: momentum with a learning rate of its own for every layer (You et al. 2017)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


class LARS(Optimizer):
    """Each step of a weight is in proportion to the weight's own norm.

    A group with ``adapt=False`` gets plain momentum without weight decay, as BYOL has it for
    biases and BatchNorms: :func:`parameter_groups` makes the groups.

    Args:
        params: groups of parameters.
        lr: learning rate; BYOL's is 0.2 for a batch of 256.
        momentum: share of the last step that is taken again.
        weight_decay: of groups that adapt.
        trust: norm of a step as a share of the weight's norm, before ``lr``.
    """

    def __init__(
        self,
        params: Iterable[dict[str, Any]],
        *,
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 1.5e-6,
        trust: float = 0.001,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "trust": trust,
            "adapt": True,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Move every weight that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                change = weight.grad
                if group["adapt"]:
                    change = change + group["weight_decay"] * weight
                    change = change * _rate(weight, change, group["trust"])
                state = self.state[weight]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(weight)
                momentum: Tensor = state["momentum"]
                momentum.mul_(group["momentum"]).add_(change)
                weight.sub_(group["lr"] * momentum)
        return loss


def parameter_groups(module: nn.Module) -> list[dict[str, Any]]:
    """What learns of a module: weights, and apart from them biases and BatchNorms."""
    learning = [weight for weight in module.parameters() if weight.requires_grad]
    return [
        {"params": [weight for weight in learning if weight.dim() > 1]},
        {
            "params": [weight for weight in learning if weight.dim() <= 1],
            "adapt": False,
            "weight_decay": 0.0,
        },
    ]


def _rate(weight: Tensor, change: Tensor, trust: float) -> Tensor:
    """1 where either norm is 0; a tensor, so that a GPU need not be waited for."""
    length, step = weight.norm(), change.norm()
    return torch.where((length > 0) & (step > 0), trust * length / step, 1.0)
