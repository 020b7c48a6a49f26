"""Differentiable top-K by perturbation (Berthet et al. 2020; Cordonnier et al. 2021).

Letters: B images, N patches, K kept, R noise samples.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def perturbed_top_k(
    scores: Tensor, *, keep: int, sigma: float, samples: int = 500, seed: int = 0
) -> Tensor:
    """Average the indicators of the top K over Gaussian noise on the scores.

    Each noisy top K is sorted by patch index, so a row stands for a position in the image rather
    than for a rank.

    Args:
        scores: ``(B, N)``.
        keep: K, at most N.
        sigma: standard deviation of the noise.
        samples: R, number of noise samples.
        seed: random seed of the noise.

    Returns:
        ``(B, K, N)``: how often patch n is k-th of the top K. Each row sums to 1 and has a gradient
        with respect to the scores.
    """
    generator = torch.Generator(scores.device).manual_seed(seed)
    B, N = scores.shape
    noise = torch.randn(B, samples, N, generator=generator, device=scores.device)
    indicators: Tensor = _PerturbedTopK.apply(scores, noise.to(scores.dtype), keep, sigma)  # type: ignore[no-untyped-call]
    return indicators


class _PerturbedTopK(torch.autograd.Function):
    """E[Y(s + sigma Z)], whose derivative with respect to s is E[Y(s + sigma Z) Z^T] / sigma.

    The indicator matrix Y of a sample has K ones; only their positions are stored.

    The gradient differs from that of the code of DPS's authors in two ways. Before it is multiplied
    by the noise, the mean over the samples is subtracted from <gradient, Y>, which reduces the
    variance: E[Z] = 0, so the expectation stays the same up to a factor (R - 1) / R. And it has no
    factor K, by which they multiply the derivative; this one is the derivative of what `forward`
    returns.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, noise: Tensor, keep: int, sigma: float) -> Tensor:
        noisy = scores.unsqueeze(1) + sigma * noise  # (B, R, N)
        top = noisy.topk(keep, dim=-1, sorted=False).indices.sort(dim=-1).values  # (B, R, K)
        B, R, N = noise.shape
        positions = top.transpose(1, 2)  # (B, K, R)
        mean = scores.new_zeros(B, keep, N)
        mean.scatter_add_(2, positions, scores.new_full(positions.shape, 1 / R))
        ctx.save_for_backward(positions, noise)
        ctx.sigma = sigma
        return mean

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        positions, noise = ctx.saved_tensors
        gain = grads[0].gather(2, positions).sum(dim=1)  # (B, R): <gradient, Y of the sample>
        gain = gain - gain.mean(dim=1, keepdim=True)
        grad = torch.einsum("br,brn->bn", gain, noise) / (noise.shape[1] * ctx.sigma)
        return grad, None, None, None
