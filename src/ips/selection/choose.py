"""Choose which M of N patches to keep: iterative (Eq. 1 of the paper), exact or random.

Letters: B images, N patches of an image, M kept (``keep``), I added per step (``chunk``), S score
channels of a patch.

All three functions have the same arguments and return the same type. ``logits`` is ``(N, S)`` for
one image or ``(B, N, S)`` for a batch. ``mask`` ``(B, N)`` is False for padding. ``order``
``(B, N)`` contains the patch indices in the order in which they are visited, padding last (see
``shuffled``); by default in ascending order. Of two equal scores, the one visited first wins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from ips.errors import ConfigError

Mode = Literal["iterative", "exact", "random"]
MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True, repr=False)
class Selection:
    """The patches kept, best first; K = min(M, largest N of the batch) per image.

    Attributes:
        indices: ``(B, K)`` indices of the patches in their image; 0 where the mask is False.
        mask: ``(B, K)``, False where an image has fewer than K patches.
        scores: ``(B, K)``, the score in the last step that compared the patch; 0 if masked.
    """

    indices: Tensor
    mask: Tensor
    scores: Tensor

    def __repr__(self) -> str:
        *batch, K = self.indices.shape  # of shapes alone, which are known without a device
        images = f"{batch[0]} images, " if batch else ""
        return f"<Selection: {images}at most {K:,} patches each>"

    def trimmed(self) -> Selection:
        """Remove the last columns if they are masked for all images."""
        K = int(self.mask.sum(dim=1).max())
        return Selection(self.indices[:, :K], self.mask[:, :K], self.scores[:, :K])


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


def iterative(
    logits: Tensor,
    *,
    keep: int,
    chunk: int,
    mask: Tensor | None = None,
    order: Tensor | None = None,
) -> Selection:
    """Eq. 1: start with the first M patches, then repeatedly keep the best M of M + I.

    The scores of a step are a softmax over its M + I candidates, so with several channels the
    result depends on the order; with one channel it equals the ``exact`` selection.
    """

    def choose(table: Tensor, order: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
        B, N, _ = table.shape
        M = min(keep, N)
        kept = torch.arange(M, device=table.device).expand(B, M)  # (B, M) positions in the order
        a = scores(_take(table, order[:, :M]), present[:, :M])  # (B, M)
        # Padding comes last, and changes nothing. Without a mask, the end must not depend on
        # values, or `torch.export` fails.
        last = N if mask is None else int(present.sum(dim=1).max())
        for start in range(M, last, chunk):  # T = ceil((N - M) / I) steps
            new = torch.arange(start, min(start + chunk, N), device=table.device)
            candidates = torch.cat([kept, new.expand(B, -1)], dim=1)  # (B, M+I)
            valid = present.gather(1, candidates)
            a_new = scores(_take(table, order.gather(1, candidates)), valid)  # (B, M+I)
            # Sorted by position, so that the patch visited first wins a tie in every step.
            best = _top(a_new, valid, M).sort(dim=1).values  # (B, M)
            # An image without further patches has no further step.
            active = present[:, new].any(dim=1, keepdim=True)  # (B, 1)
            kept = torch.where(active, candidates.gather(1, best), kept)
            a = torch.where(active, a_new.gather(1, best), a)
        return kept, a

    return _select(choose, logits, keep=keep, chunk=chunk, mask=mask, order=order)


def exact(
    logits: Tensor,
    *,
    keep: int,
    chunk: int = 1,
    mask: Tensor | None = None,
    order: Tensor | None = None,
) -> Selection:
    """Keep the best M under one softmax over all N; the order only matters for ties."""

    def choose(table: Tensor, order: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
        valid = torch.zeros_like(present).scatter(1, order, present)  # by patch index
        a = scores(table, valid).gather(1, order)  # (B, N)
        kept = _top(a, present, min(keep, table.shape[1]))  # (B, M)
        return kept, a.gather(1, kept)

    return _select(choose, logits, keep=keep, chunk=chunk, mask=mask, order=order)


def random(
    logits: Tensor,
    *,
    keep: int,
    chunk: int = 1,
    mask: Tensor | None = None,
    order: Tensor | None = None,
) -> Selection:
    """Keep the first M in the order, whatever their logits (the RPS baseline).

    Only the shape of the logits matters, so they may be ``(B, N, 0)``. All scores are 1 / N.
    """

    def choose(table: Tensor, order: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
        kept = torch.arange(min(keep, table.shape[1]), device=table.device)
        kept = kept.expand(len(table), -1)  # (B, M)
        counts = present.sum(dim=1, keepdim=True)  # (B, 1)
        return kept, present.gather(1, kept).to(logits.dtype) / counts.clamp(min=1)

    return _select(choose, logits, keep=keep, chunk=chunk, mask=mask, order=order)


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


def _select(
    choose: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]],
    logits: Tensor,
    *,
    keep: int,
    chunk: int,
    mask: Tensor | None,
    order: Tensor | None,
) -> Selection:
    """Choose positions in the order, and map them back to patch indices.

    The table itself is never reordered, which would copy the logits of a huge image.
    """
    if keep < 1 or chunk < 1:
        raise ConfigError(f"keep={keep} and chunk={chunk} must both be at least 1 patch")
    if logits.dim() == 2:
        one = _select(
            choose,
            logits.unsqueeze(0),
            keep=keep,
            chunk=chunk,
            mask=None if mask is None else mask.unsqueeze(0),
            order=None if order is None else order.unsqueeze(0),
        )
        return Selection(one.indices[0], one.mask[0], one.scores[0])
    if mask is None:
        mask = torch.ones(logits.shape[:2], dtype=torch.bool, device=logits.device)
    if order is None:  # ascending, padding last
        order = (~mask).to(torch.int8).sort(dim=1, stable=True).indices
    present = mask.gather(1, order)  # (B, N)
    with torch.no_grad():
        kept, a = choose(logits, order, present)  # (B, M)
    best = a.masked_fill(~present.gather(1, kept), -1.0).sort(dim=1, descending=True, stable=True)
    kept, a = kept.gather(1, best.indices), a.gather(1, best.indices)
    valid = present.gather(1, kept)  # (B, M)
    return Selection(
        indices=order.gather(1, kept).masked_fill(~valid, 0),
        mask=valid,
        scores=a.masked_fill(~valid, 0.0),
    )


def _take(table: Tensor, index: Tensor) -> Tensor:
    """Take rows of each image's table: ``(B, N, S)`` and ``(B, k)`` give ``(B, k, S)``."""
    return table.gather(1, index.unsqueeze(-1).expand(-1, -1, table.shape[-1]))


def _top(a: Tensor, present: Tensor, count: int) -> Tensor:
    """Positions of the ``count`` highest scores; earlier ones win ties, padding comes last."""
    a = a.masked_fill(~present, -1.0)  # below 0, to which the score of a patch may round
    return a.sort(dim=1, descending=True, stable=True).indices[:, :count]
