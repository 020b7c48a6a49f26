"""Turn logits into one score per patch, and shuffle the order in which patches are visited.

Letters: B images, N patches of an image, S score channels of a patch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def scores(logits: Tensor, mask: Tensor) -> Tensor:
    """Attention of each patch among those given: softmax per channel, mean over channels.

    Channels are heads x tokens, so this is the mean over heads, then over tokens (Appendix B). A
    masked patch is excluded from the softmax and has the score 0.

    Args:
        logits: ``(B, N, S)``.
        mask: ``(B, N)``, False for padding.

    Returns:
        ``(B, N)``; sums to 1 over the patches of an image.
    """
    absent = ~mask.unsqueeze(-1)  # (B, N, 1)
    attention = logits.masked_fill(absent, -torch.inf).softmax(dim=1)  # (B, N, S)
    # For an image without patches the softmax is NaN, which becomes 0 here.
    return attention.masked_fill(absent, 0.0).mean(dim=-1)  # (B, N)


def shuffled(mask: Tensor, *, seed: int | Sequence[int]) -> Tensor:
    """Shuffle the patches of each image by a seed; padding comes last.

    The order decides which patches are compared in a step of the iterative selection, and which of
    two equal scores wins. It depends on the seed and on the number of patches of the image, but
    neither on its position in the batch nor on the padding, nor on the device.

    Args:
        mask: ``(B, N)``, False for padding.
        seed: one seed for all images, or one for each.

    Returns:
        ``(B, N)`` patch indices.
    """
    order = torch.empty(mask.shape, dtype=torch.int64)
    seeds = [seed] * len(mask) if isinstance(seed, int) else seed
    for row, present, image_seed in zip(order, mask.cpu(), seeds, strict=True):
        indices, padding = present.nonzero()[:, 0], (~present).nonzero()[:, 0]
        generator = torch.Generator().manual_seed(image_seed)
        shuffle = torch.randperm(len(indices), generator=generator)
        row.copy_(torch.cat([indices[shuffle], padding]))
    return order.to(mask.device)
