"""The perturbed top-K against its expectation in closed form."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ips.selection import perturbed_top_k

SCORES = torch.tensor([[0.3, 0.0, 0.5], [-1.0, 0.2, 0.1]], dtype=torch.float64)
SIGMA = 0.5


def chance_of_first(scores: Tensor, sign: float) -> Tensor:
    """``(B, N)``: how likely each score is the highest (sign 1) or lowest (-1) under the noise.

    With z the noise of one score, that of each other must stay below: an integral over z.
    """
    z = torch.linspace(-8, 8, 4001, dtype=scores.dtype)
    density = torch.exp(-(z**2) / 2) / (2 * torch.pi) ** 0.5
    gaps = sign * (scores.unsqueeze(2) - scores.unsqueeze(1)) / SIGMA  # (B, N, N)
    below = torch.special.ndtr(gaps.unsqueeze(-1) + z)  # (B, N, N, z)
    own = torch.eye(scores.shape[1], dtype=torch.bool).view(1, *gaps.shape[1:], 1)
    product = below.masked_fill(own, 1.0).prod(dim=2)  # (B, N, z)
    return torch.trapezoid(product * density, z, dim=-1)


def expected(scores: Tensor, keep: int) -> Tensor:
    if keep == 1:
        return chance_of_first(scores, 1).unsqueeze(1)
    low = chance_of_first(scores, -1)  # two of three: all but the lowest, in their order
    first = torch.stack([1 - low[:, 0], low[:, 0], torch.zeros_like(low[:, 0])], dim=1)
    second = torch.stack([torch.zeros_like(low[:, 0]), low[:, 2], 1 - low[:, 2]], dim=1)
    return torch.stack([first, second], dim=1)


@pytest.mark.parametrize("keep", [1, 2])
def test_forward_and_gradient_are_those_of_the_expectation(keep: int) -> None:
    weight = torch.randn(2, keep, 3, dtype=torch.float64, generator=torch.manual_seed(1))

    exact = SCORES.clone().requires_grad_()
    truth = expected(exact, keep)
    (truth * weight).sum().backward()

    sampled = SCORES.clone().requires_grad_()
    got = perturbed_top_k(sampled, keep=keep, sigma=SIGMA, samples=200_000)
    (got * weight).sum().backward()

    assert torch.allclose(got, truth, atol=0.006)
    assert exact.grad is not None
    assert sampled.grad is not None
    assert exact.grad.abs().max() > 0.1  # there is something to compare
    assert torch.allclose(sampled.grad, exact.grad, atol=0.03)


def test_every_row_sums_to_one_and_keeps_the_order_of_patches() -> None:
    scores = torch.rand(3, 20, generator=torch.manual_seed(0))
    rows = perturbed_top_k(scores, keep=5, sigma=0.05, samples=100)
    assert rows.shape == (3, 5, 20)
    assert torch.allclose(rows.sum(dim=-1), torch.ones(3, 5))
    means = rows @ torch.arange(20.0)
    assert (means.diff(dim=1) > 0).all()


def test_without_much_noise_it_is_the_top_k() -> None:
    scores = torch.tensor([[0.1, 0.9, 0.2, 0.8]])
    rows = perturbed_top_k(scores, keep=2, sigma=1e-4)
    assert torch.allclose(rows, torch.tensor([[[0.0, 1, 0, 0], [0, 0, 0, 1]]]))


def test_the_seed_decides_the_noise() -> None:
    scores = torch.rand(1, 30, generator=torch.manual_seed(0))
    rows = [perturbed_top_k(scores, keep=3, sigma=0.5, seed=seed) for seed in (0, 0, 1)]
    assert torch.equal(rows[0], rows[1])
    assert not torch.equal(rows[0], rows[2])
