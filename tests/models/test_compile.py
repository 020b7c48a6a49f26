"""The compiled select step: traced for real, run without generated code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.models.small_net import SIDE, D, build, memory


class Plain(nn.Module):
    """An encoder that cannot be folded."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(SIDE * SIDE, D)

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        # control flow that depends on the data cannot be traced for folding
        out: Tensor = self.linear(flat) if bool(flat.sum() > -1e9) else self.linear(-flat)
        return out


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("encoder", [None, Plain], ids=["folded", "as it is"])
def test_the_compiled_pass_selects_the_same_patches(
    monkeypatch: pytest.MonkeyPatch, encoder: Callable[[], nn.Module] | None
) -> None:
    compiled: list[Any] = []
    original = torch.compile

    def traced(module: nn.Module) -> Any:
        compiled.append(module)
        return original(module, backend="eager")

    monkeypatch.setattr(torch, "compile", traced)
    source = memory(20)
    selections = []
    for compile in (False, True):
        torch.manual_seed(0)
        net = build(encoder() if encoder else None, compile=compile)
        selections.append(net.select([source], seed=0).selection)
    assert torch.equal(selections[0].indices, selections[1].indices)
    assert len(compiled) == 1
    torch._dynamo.reset()
