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
    """Which patch is k-th of the top K, on average over Gaussian noise on the scores.

    Of each noisy top K, patches are taken in the order of their numbers, so that a row belongs to
    a place rather than to a rank.

    Args:
        scores: ``(B, N)``.
        keep: K, at most N.
        sigma: standard deviation of the noise.
        samples: R.
        seed: of the noise.

    Returns:
        ``(B, K, N)``, each row sums to 1; its gradient reaches the scores.
    """
    generator = torch.Generator(scores.device).manual_seed(seed)
    B, N = scores.shape
    noise = torch.randn(B, samples, N, generator=generator, device=scores.device)
    indicators: Tensor = _PerturbedTopK.apply(scores, noise.to(scores.dtype), keep, sigma)  # type: ignore[no-untyped-call]
    return indicators


class _PerturbedTopK(torch.autograd.Function):
    """E[Y(s + sigma Z)], whose derivative in s is E[Y(s + sigma Z) Z^T] / sigma.

    Y is never built for a single sample: it is K ones, and their places are enough.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, noise: Tensor, keep: int, sigma: float) -> Tensor:
        noisy = scores.unsqueeze(1) + sigma * noise  # (B, R, N)
        top = noisy.topk(keep, dim=-1, sorted=False).indices.sort(dim=-1).values  # (B, R, K)
        B, R, N = noise.shape
        places = top.transpose(1, 2)  # (B, K, R)
        mean = scores.new_zeros(B, keep, N)
        mean.scatter_add_(2, places, scores.new_full(places.shape, 1 / R))
        ctx.save_for_backward(places, noise)
        ctx.sigma = sigma
        return mean

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        places, noise = ctx.saved_tensors
        gain = grads[0].gather(2, places).sum(dim=1)  # (B, R): <gradient, Y of the sample>
        # E[Z] = 0, so that a constant changes nothing but the noise: that of the mean is the least
        gain = gain - gain.mean(dim=1, keepdim=True)
        grad = torch.einsum("br,brn->bn", gain, noise) / (noise.shape[1] * ctx.sigma)
        return grad, None, None, None
