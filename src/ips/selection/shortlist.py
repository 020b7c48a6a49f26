"""Which patches to score, given an estimate of their scores, and what the selection then misses.

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
    """What a shortlist loses of the selection from the scores of all patches of an image.

    Where nothing stands out, the best patches have little attention, and which of them are selected
    is chance: `patches` is low, yet little attention is lost. So the recall of attention of several
    images is the sum of `attention`, divided by that of `best`.

    Attributes:
        patches: share of the M patches selected by full scoring that are on the shortlist.
        attention: share of the image's attention that the M best patches of the shortlist have.
        best: share of the image's attention that the M best of all patches have.
    """

    patches: float
    attention: float
    best: float


def recall(logits: Tensor, kept: Tensor, listed: Tensor) -> Recall:
    """Compare a shortlist with the selection from the scores of all patches.

    Args:
        logits: ``(N, S)`` of all patches; -inf for a blank patch.
        kept: ``(M,)`` indices of the patches selected by these logits.
        listed: ``(N,)``, True for patches of the shortlist.
    """
    x = logits.double().unsqueeze(0)  # (1, N, S)
    mask = (x != -torch.inf).all(dim=2)  # (1, N)
    M, a = len(kept), scores(x, mask)[0]  # (N,)
    found = scores(x, mask & listed)[0].topk(min(M, int(listed.sum()))).indices
    best = a.topk(M).values.sum()
    return Recall(float(listed[kept].double().mean()), float(a[found].sum()), float(best))


def estimated_recall(logits: Tensor, listed: Tensor, spare: Tensor, *, keep: int) -> float:
    """Estimate the recall of attention in one image from patches that were scored at random.

    Each of them stands for many of the patches that were left out, so if one is among the best,
    many others probably are.

    Args:
        logits: ``(N, S)``; -inf for a blank patch, anything for one that was left out.
        listed: ``(N,)``, True for patches that were scored.
        spare: ``(N,)``, True for those of them that were listed by chance.
        keep: M.

    Returns:
        The estimate; 0 if all patches that were scored are blank.
    """
    mask = (listed & (logits != -torch.inf).all(dim=1)).unsqueeze(0)  # (1, N)
    if not mask.any():
        return 0.0
    others = int((~listed | spare).sum())
    weight = torch.where(spare, others / max(int(spare.sum()), 1), 1.0).double()  # (N,)
    x = logits.double().unsqueeze(0)  # (1, N, S)
    a = scores(x + weight.log().unsqueeze(1), mask)[0] / weight  # (N,) attention of a single patch
    chosen = scores(x, mask)[0].topk(min(keep, int(mask.sum()))).indices
    order = a.argsort(descending=True)
    ends = weight[order].cumsum(dim=0).clamp(max=keep)  # (N,)
    most = (a[order] * ends.diff(prepend=ends.new_zeros(1))).sum()
    return min(float(a[chosen].sum() / most), 1.0)
