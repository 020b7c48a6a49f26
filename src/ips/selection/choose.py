"""Which M of the N patches to keep: iterative (Eq. 1 of the paper), exact, random.

Letters: B images, N patches of an image, M kept (``keep``), I looked at per step (``chunk``),
S score channels of a patch.

All three take the same arguments and give the same thing. ``logits`` is ``(N, S)`` for one image
or ``(B, N, S)`` for a batch; ``mask`` ``(B, N)`` is True where there is a patch; ``order``
``(B, N)`` lists the patch numbers in the order of looking, absent ones last (see ``shuffled``),
and is the image's own order by default. Of two equal scores the one earlier in the order wins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from ips.errors import ConfigError
from ips.selection.scores import scores

Mode = Literal["iterative", "exact", "random"]
MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True)
class Selection:
    """The patches kept, best first; K = min(M, largest N of the batch) places an image.

    Attributes:
        indices: ``(B, K)`` patch numbers in the image's own numbering; 0 where the mask is False.
        mask: ``(B, K)``, False where an image has fewer than K patches.
        scores: ``(B, K)``, the score at the step that last looked at the patch; 0 if masked.
    """

    indices: Tensor
    mask: Tensor
    scores: Tensor

    def trimmed(self) -> Selection:
        """Without the last places, if no image of the batch has a patch there."""
        K = int(self.mask.sum(dim=1).max())
        return Selection(self.indices[:, :K], self.mask[:, :K], self.scores[:, :K])


def iterative(
    logits: Tensor,
    *,
    keep: int,
    chunk: int,
    mask: Tensor | None = None,
    order: Tensor | None = None,
) -> Selection:
    """Eq. 1: fill a buffer with the first M, then keep the best M of M + I, I at a time.

    The scores of a step are a softmax over its M + I candidates, so with more than one channel
    what is kept depends on the order; with one channel it is the ``exact`` selection.
    """

    def choose(table: Tensor, order: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
        B, N, _ = table.shape
        M = min(keep, N)
        at = torch.arange(M, device=table.device).expand(B, M)  # (B, M)
        a = scores(_take(table, order[:, :M]), present[:, :M])  # (B, M)
        for start in range(M, N, chunk):  # T = ceil((N - M) / I) steps
            new = torch.arange(start, min(start + chunk, N), device=table.device)
            candidates = torch.cat([at, new.expand(B, -1)], dim=1)  # (B, M+I)
            there = present.gather(1, candidates)
            a_new = scores(_take(table, order.gather(1, candidates)), there)  # (B, M+I)
            # In the order of looking, so that a tie goes to the earlier patch at every step.
            best = _top(a_new, there, M).sort(dim=1).values  # (B, M)
            # An image whose patches have run out has no further step.
            runs = present[:, new].any(dim=1, keepdim=True)  # (B, 1)
            at = torch.where(runs, candidates.gather(1, best), at)
            a = torch.where(runs, a_new.gather(1, best), a)
        return at, a

    return _select(choose, logits, keep=keep, chunk=chunk, mask=mask, order=order)


def exact(
    logits: Tensor,
    *,
    keep: int,
    chunk: int = 1,
    mask: Tensor | None = None,
    order: Tensor | None = None,
) -> Selection:
    """One softmax over all N, then the best M: free of the order except between equals."""

    def choose(table: Tensor, order: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
        there = torch.zeros_like(present).scatter(1, order, present)  # in the image's own order
        a = scores(table, there).gather(1, order)  # (B, N)
        at = _top(a, present, min(keep, table.shape[1]))  # (B, M)
        return at, a.gather(1, at)

    return _select(choose, logits, keep=keep, chunk=chunk, mask=mask, order=order)


def random(
    logits: Tensor,
    *,
    keep: int,
    chunk: int = 1,
    mask: Tensor | None = None,
    order: Tensor | None = None,
) -> Selection:
    """The first M in the order, whatever their logits (the RPS baseline).

    Of the table only the shape counts: ``(B, N, 0)`` will do. All scores are 1 / N.
    """

    def choose(table: Tensor, order: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
        at = torch.arange(min(keep, table.shape[1]), device=table.device)
        counts = present.sum(dim=1, keepdim=True)  # (B, 1)
        at = at.expand(len(table), -1)  # (B, M)
        return at, present.gather(1, at).to(logits.dtype) / counts.clamp(min=1)

    return _select(choose, logits, keep=keep, chunk=chunk, mask=mask, order=order)


def _select(
    choose: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]],
    logits: Tensor,
    *,
    keep: int,
    chunk: int,
    mask: Tensor | None,
    order: Tensor | None,
) -> Selection:
    """Choose places in the order, and name what was chosen by the image's own numbers.

    The table is never put in order as a whole: of a huge image that would be a second copy.
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
    if order is None:  # present patches first, each in its own place
        order = (~mask).to(torch.int8).sort(dim=1, stable=True).indices
    present = mask.gather(1, order)  # (B, N)
    with torch.no_grad():
        at, a = choose(logits, order, present)  # (B, M) places in the order
    best = a.masked_fill(~present.gather(1, at), -1.0).sort(dim=1, descending=True, stable=True)
    at, a = at.gather(1, best.indices), a.gather(1, best.indices)
    kept = present.gather(1, at)  # (B, M)
    return Selection(
        indices=order.gather(1, at).masked_fill(~kept, 0),
        mask=kept,
        scores=a.masked_fill(~kept, 0.0),
    )


def _take(table: Tensor, index: Tensor) -> Tensor:
    """Rows of each image's table: ``(B, N, S)`` and ``(B, k)`` give ``(B, k, S)``."""
    return table.gather(1, index.unsqueeze(-1).expand(-1, -1, table.shape[-1]))


def _top(a: Tensor, present: Tensor, count: int) -> Tensor:
    """Places of the ``count`` highest scores, earlier first among equals, absent ones last."""
    a = a.masked_fill(~present, -1.0)  # below the 0 that a present patch may round to
    return a.sort(dim=1, descending=True, stable=True).indices[:, :count]
