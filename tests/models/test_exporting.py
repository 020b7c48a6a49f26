"""The forward step as an exported program."""

from __future__ import annotations

import pytest
import torch

from ips.models import ForwardStep
from tests.models.small_net import KEEP, build, memory


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("position", [False, True])
def test_an_exported_forward_step_gives_the_same_logits(position: bool) -> None:
    net = build(readout=True, position=position).eval()
    chosen = net.select([memory(20, seed=0), memory(9, seed=1)])
    inputs = chosen.patches, chosen.selection.indices
    assert inputs[1].shape == (2, KEEP)
    expected = net(chosen.patches, chosen.selection).logits
    program = torch.export.export(ForwardStep(net).eval(), inputs)
    found = program.module()(*inputs)
    assert found.keys() == expected.keys()
    for task, logits in expected.items():
        torch.testing.assert_close(found[task], logits)
    other = net.select([memory(30, seed=2), memory(31, seed=3)])
    again = program.module()(other.patches, other.selection.indices)
    logits = net(other.patches, other.selection).logits
    torch.testing.assert_close(again["majority"], logits["majority"])


def test_the_step_has_gradients() -> None:
    net = build()
    chosen = net.select([memory(20)])
    assert chosen.patches is not None
    step = ForwardStep(net)
    step(chosen.patches, chosen.selection.indices)["majority"].sum().backward()
    assert all(p.grad is not None for p in net.encoder.parameters())
