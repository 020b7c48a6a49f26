"""Evaluation mode as a context manager."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ips.nn import evaluating


def network() -> nn.Sequential:
    """In training mode, but for a frozen BatchNorm in the middle of it."""
    frozen = nn.BatchNorm1d(2).eval()
    return nn.Sequential(nn.Linear(2, 2), nn.Sequential(frozen, nn.Dropout(0.5)))


def flags(module: nn.Module) -> list[bool]:
    return [part.training for part in module.modules()]


def test_evaluation_mode_without_gradients_inside() -> None:
    model = network()
    with evaluating(model):
        assert not any(flags(model))
        assert not torch.is_grad_enabled()
        assert not model(torch.randn(3, 2)).requires_grad
    assert torch.is_grad_enabled()


def test_the_mode_of_every_module_is_restored() -> None:
    model = network()
    before = flags(model)
    with evaluating(model):
        pass
    assert flags(model) == before == [True, True, True, False, True]


def test_modes_are_restored_after_an_exception() -> None:
    model = network()
    before = flags(model)
    with pytest.raises(ZeroDivisionError), evaluating(model):
        raise ZeroDivisionError
    assert flags(model) == before
    assert torch.is_grad_enabled()


def test_nested_uses_restore_the_modes() -> None:
    model = network()
    before = flags(model)
    with evaluating(model, model[1]), evaluating(model[1]):
        assert not any(flags(model))
    assert flags(model) == before
