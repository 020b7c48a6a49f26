from __future__ import annotations

import pytest
import torch

from ips.training import build_data, build_model, resolve
from ips.training.module import Learner, learning_rate_factor
from tests.training.tiny import tiny


def test_warm_up_is_linear_and_ends_at_the_peak() -> None:
    factors = [learning_rate_factor(s, warmup=10, total=150) for s in range(10)]
    assert factors == pytest.approx([(s + 1) / 10 for s in range(10)])


def test_cosine_ends_at_a_thousandth() -> None:
    assert learning_rate_factor(9, warmup=10, total=150) == pytest.approx(1.0)
    assert learning_rate_factor(79, warmup=10, total=150) == pytest.approx(0.5005)
    assert learning_rate_factor(149, warmup=10, total=150) == pytest.approx(0.001)
    assert learning_rate_factor(150, warmup=10, total=150) == pytest.approx(0.001)


def test_it_only_falls_after_the_warm_up() -> None:
    factors = [learning_rate_factor(s, warmup=0, total=50) for s in range(51)]
    assert factors == sorted(factors, reverse=True)


def test_the_patch_level_head_does_not_count_when_gradients_are_clipped() -> None:
    config = tiny()
    net = build_model(resolve(config, build_data(config)))
    assert net.readout is not None
    for weight in net.parameters():
        weight.grad = torch.ones_like(weight)
    Learner(net, config).configure_gradient_clipping(torch.optim.SGD(net.parameters()), 0.1)
    head = set(net.readout.parameters())
    assert all(weight.grad is not None and (weight.grad == 1).all() for weight in head)
    rest = [
        weight.grad.norm() for weight in set(net.parameters()) - head if weight.grad is not None
    ]
    torch.testing.assert_close(torch.stack(rest).norm(), torch.tensor(0.1))
