"""From logits to one score per patch, and the order in which patches are looked at.

Letters: B images, N patches of an image, S score channels of a patch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def scores(logits: Tensor, mask: Tensor) -> Tensor:
    """Attention of each patch among those given: softmax per channel, mean over the channels.

    Channels are heads x tokens, so their mean is the mean over heads, then over tokens
    (Appendix B). A masked patch takes no part in the softmax and scores 0.

    Args:
        logits: ``(B, N, S)``.
        mask: ``(B, N)``, True where there is a patch.

    Returns:
        ``(B, N)``, which sums to 1 over the patches of an image.
    """
    absent = ~mask.unsqueeze(-1)  # (B, N, 1)
    attention = logits.masked_fill(absent, -torch.inf).softmax(dim=1)  # (B, N, S)
    # An image with no patch among these has only -inf in a channel, hence NaN: it scores 0.
    return attention.masked_fill(absent, 0.0).mean(dim=-1)  # (B, N)


def shuffled(mask: Tensor, *, seed: int | Sequence[int]) -> Tensor:
    """A seeded order of the patches of each image, absent ones last.

    The order decides which patches meet in a step of the iterative selection, and which of two
    equal scores wins. Each image draws its own order from the seed and its number of patches
    alone, so neither its place in the batch nor the padding changes it.

    Args:
        mask: ``(B, N)``, True where there is a patch.
        seed: the same seed gives the same order on every device; or one for each image.

    Returns:
        ``(B, N)`` patch numbers.
    """
    order = torch.empty(mask.shape, dtype=torch.int64)
    seeds = [seed] * len(mask) if isinstance(seed, int) else seed
    for row, present, own in zip(order, mask.cpu(), seeds, strict=True):
        numbers, absent = present.nonzero()[:, 0], (~present).nonzero()[:, 0]
        generator = torch.Generator().manual_seed(own)
        shuffle = torch.randperm(len(numbers), generator=generator)
        row.copy_(torch.cat([numbers[shuffle], absent]))
    return order.to(mask.device)
