"""LARS: SGD with momentum and a separate learning rate for every layer (You et al. 2017)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


class LARS(Optimizer):
    """Scales the step of each weight tensor to the norm of that tensor.

    Groups with ``adapt=False`` get plain momentum SGD without weight decay, as BYOL uses it for
    biases and BatchNorms; :func:`parameter_groups` builds the groups.

    Args:
        lr: learning rate; BYOL uses 0.2 for a batch of 256.
        weight_decay: weight decay of the adapted groups.
        trust: ratio of the norms of a step and its weight, before ``lr``.
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
        rates = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__(params, {**rates, "trust": trust, "adapt": True})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                update = weight.grad
                if group["adapt"]:
                    update = update + group["weight_decay"] * weight
                    update = update * _rate(weight, update, group["trust"])
                state = self.state[weight]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(weight)
                momentum: Tensor = state["momentum"]
                momentum.mul_(group["momentum"]).add_(update)
                weight.sub_(group["lr"] * momentum)
        return loss


def parameter_groups(module: nn.Module) -> list[dict[str, Any]]:
    """Trainable parameters in two groups: weights, and biases with BatchNorms."""
    trainable = [weight for weight in module.parameters() if weight.requires_grad]
    weights = [weight for weight in trainable if weight.dim() > 1]
    others = [weight for weight in trainable if weight.dim() <= 1]
    return [{"params": weights}, {"params": others, "adapt": False, "weight_decay": 0.0}]


def _rate(weight: Tensor, update: Tensor, trust: float) -> Tensor:
    """Learning rate factor, 1 if either norm is 0; a tensor, to avoid a GPU synchronisation."""
    length, step = weight.norm(), update.norm()
    return torch.where((length > 0) & (step > 0), trust * length / step, 1.0)
