"""A stand-in for the package timm, which the tests cannot install."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

MEAN, STD = (0.5, 0.4, 0.3), (0.25, 0.2, 0.1)


class Tokens(nn.Module):
    """Stands in for a vision transformer: mean colour, through a linear layer."""

    def __init__(self, *, channels: int = 3, side: int | None = None, registers: int = 0) -> None:
        super().__init__()
        self.num_prefix_tokens = 1 + registers
        self.num_features = 8
        self.pretrained_cfg: dict[str, Any] = {"mean": MEAN, "std": STD}
        if side is not None:
            self.pretrained_cfg |= {"fixed_input_size": True, "input_size": (3, side, side)}
        self.norm = nn.Linear(channels, self.num_features)

    def forward(self, x: Tensor) -> Tensor:
        token: Tensor = self.norm(x.flatten(2).mean(dim=2))
        return token

    def forward_features(self, x: Tensor) -> Tensor:
        """A class token, register tokens of 1,000, and a token for each quarter of the patch."""
        registers = torch.full((len(x), self.num_prefix_tokens - 1, self.num_features), 1e3)
        quarters = F.adaptive_avg_pool2d(x, 2).flatten(2).transpose(1, 2)  # (n, 4, C)
        return torch.cat([self(x)[:, None], registers, self.norm(quarters)], dim=1)


def install(patch: pytest.MonkeyPatch, *, side: int | None = None) -> list[tuple[str, Any]]:
    """Put the stand-in in place of timm; return the list of the models that were created.

    A pretrained model has only ones as weights.
    """
    created: list[tuple[str, Any]] = []

    def create_model(name: str, **options: Any) -> nn.Module:
        created.append((name, options))
        channels, registers = options.get("in_chans", 3), options.get("reg_tokens", 0)
        net = Tokens(channels=channels, side=side, registers=registers)
        if options["pretrained"]:
            for parameter in net.parameters():
                nn.init.ones_(parameter)
        return net

    replace(patch, create_model)
    return created


def replace(patch: pytest.MonkeyPatch, create_model: Callable[..., nn.Module]) -> None:
    """Replace timm by a module with this function alone."""
    module = ModuleType("timm")
    module.__spec__ = ModuleSpec("timm", None)
    module.create_model = create_model  # type: ignore[attr-defined]
    patch.setitem(sys.modules, "timm", module)
    layers = ModuleType("timm.layers")
    layers.SwiGLUPacked = nn.Identity  # type: ignore[attr-defined]
    patch.setitem(sys.modules, "timm.layers", layers)


def is_pretrained(net: nn.Module) -> bool:
    return all(torch.equal(p, torch.ones_like(p)) for p in net.parameters())
