"""Which patches to score, given an estimate of their scores, and how many winners that misses.

Letters: N patches of an image, M kept, S score channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ips.selection.choose import scores


def shortlist(
    estimate: Tensor, *, size: int, always: Tensor, others: Sequence[tuple[Tensor, int]] = ()
) -> Tensor:
    """Choose the patches to score.

    Args:
        estimate: ``(N, S)`` estimated logits; nan where there is none, -inf for a blank patch.
        size: number of patches with the highest estimated scores to choose.
        always: ``(N,)``, True for patches that are chosen in any case and do not count.
        others: orders ``(N,)`` of all patches, each with a number of further patches to choose.

    Returns:
        ``(N,)``, True for patches to score: the best, and all without an estimate.
    """
    chosen = always | estimate.isnan().any(dim=1)
    rank = ~chosen & (estimate != -torch.inf).all(dim=1)
    a = scores(estimate.unsqueeze(0), rank.unsqueeze(0))[0].masked_fill(~rank, -1.0)  # (N,)
    best = a.topk(min(size, int(rank.sum()))).indices
    chosen[best] = True
    for order, count in others:
        chosen[order[~chosen[order]][:count]] = True
    return chosen


@dataclass(frozen=True)
class Recall:
    """What a shortlist contains of the M patches that are kept if all patches are scored.

    Attributes:
        patches: share of these patches.
        attention: share of the attention to these patches.
    """

    patches: float
    attention: float


def recall(logits: Tensor, kept: Tensor, listed: Tensor) -> Recall:
    """Compare a shortlist with the selection from the scores of all patches.

    Args:
        logits: ``(N, S)`` of all patches; -inf for a blank patch.
        kept: ``(M,)`` indices of the patches selected by these logits.
        listed: ``(N,)``, True for patches of the shortlist.
    """
    found = listed[kept]  # (M,)
    mask = (logits != -torch.inf).all(dim=1)
    a = scores(logits.double().unsqueeze(0), mask.unsqueeze(0))[0][kept]  # (M,)
    # Attention is 0 if all patches are blank.
    attention = float(a[found].sum() / a.sum()) if a.sum() > 0 else float(found.double().mean())
    return Recall(float(found.double().mean()), attention)
