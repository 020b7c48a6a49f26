"""Which patches are scored given an estimate of their scores, and what that misses."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ips.selection import estimated_recall, exact, recall, scores, shortlist


def naive(
    estimate: Tensor, size: int, always: Tensor, others: list[tuple[Tensor, int]]
) -> set[int]:
    """The same with sets and loops."""
    N = len(estimate)
    chosen = {i for i in range(N) if always[i] or estimate[i].isnan().any()}
    rest = [i for i in range(N) if i not in chosen and not estimate[i].isinf().any()]
    if rest:
        a = estimate[rest].softmax(dim=0).mean(dim=1)
        chosen |= {rest[i] for i in a.argsort(descending=True).tolist()[:size]}
    for order, count in others:
        new = [i for i in order.tolist() if i not in chosen]
        chosen |= set(new[:count])
    return chosen


@given(st.integers(1, 30), st.integers(1, 3), st.integers(0, 12), st.integers(0, 10**6))
def test_a_shortlist_has_the_best_the_unknown_and_some_others(
    N: int, S: int, size: int, seed: int
) -> None:
    rng = torch.Generator().manual_seed(seed)
    estimate = torch.randn(N, S, generator=rng, dtype=torch.float64)
    kind = torch.rand(N, generator=rng)
    estimate[kind < 0.1] = torch.nan
    estimate[kind > 0.9] = -torch.inf
    always = torch.rand(N, generator=rng) < 0.2
    others = [(torch.randperm(N, generator=rng), count) for count in (2, 3)]
    found = shortlist(estimate, size=size, always=always, others=others)
    assert set(found.nonzero()[:, 0].tolist()) == naive(estimate, size, always, others)


def test_recall_compares_patches_and_their_attention() -> None:
    logits = torch.tensor([[0.0], [2.0], [1.0], [3.0], [-torch.inf]])
    kept = exact(logits, keep=2, mask=logits[:, 0] > -torch.inf).indices
    assert kept.tolist() == [3, 1]
    a = torch.tensor([0.0, 2.0, 1.0, 3.0]).double().softmax(dim=0)
    found = recall(logits, kept, torch.tensor([True, False, True, True, False]))
    assert found.patches == 0.5
    assert found.attention == pytest.approx(float(a[3] + a[2]))  # 2 is selected instead of 1
    assert found.best == pytest.approx(float(a[3] + a[1]))
    everything = recall(logits, kept, torch.ones(5, dtype=torch.bool))
    assert everything.patches == 1
    assert everything.attention == everything.best


def test_the_recall_of_an_image_of_blank_patches_is_defined() -> None:
    blank = torch.full((4, 2), -torch.inf)
    found = recall(blank, torch.tensor([0, 1]), torch.tensor([True, False, False, False]))
    assert (found.patches, found.attention, found.best) == (0.5, 0, 0)
    assert scores(blank[None], torch.zeros(1, 4, dtype=torch.bool)).sum() == 0


@given(st.integers(1, 3), st.floats(0, 3), st.sampled_from([1, 4, 7, 30]), st.integers(0, 10**6))
def test_random_patches_tell_how_much_attention_is_missed(
    S: int, spread: float, M: int, seed: int
) -> None:
    """The estimate is that of a table in which every random patch occurs as often as it counts."""
    rng = torch.Generator().manual_seed(seed)
    N, each = 45, 5
    logits = spread * torch.randn(N, S, generator=rng, dtype=torch.float64)
    order = torch.randperm(N, generator=rng)
    listed, spare, blank = torch.zeros(3, N, dtype=torch.bool)
    spare[order[:6]] = True
    listed[order[:21]] = True  # 15 of the best, and 6 for the 30 others
    blank[order[4:8]] = True
    logits[blank] = -torch.inf
    seen = listed & ~blank
    copies = torch.cat([logits[seen & ~spare], logits[seen & spare].repeat(each, 1)])
    whole = scores(copies[None], torch.ones(1, len(copies), dtype=torch.bool))[0]
    kept = scores(logits[None], seen[None])[0].topk(min(M, int(seen.sum()))).indices
    mine = (logits[kept].exp() / copies.exp().sum(dim=0)).mean(dim=1).sum()
    expected = min(float(mine / whole.topk(min(M, len(copies))).values.sum()), 1)
    assert estimated_recall(logits, listed, spare, keep=M) == pytest.approx(expected)


def test_nothing_is_missed_if_no_random_patch_stands_out() -> None:
    logits = torch.tensor([[6.0], [5.0], [-8.0], [0.0], [0.0]])
    listed, spare = torch.arange(5) < 3, torch.arange(5) == 2
    assert estimated_recall(logits, listed, spare, keep=2) == 1
    logits[2] = 9.0
    assert estimated_recall(logits, listed, spare, keep=2) == pytest.approx(0.52, abs=0.01)
