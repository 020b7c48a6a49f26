"""Selection against a naive loop over lists of floats, and the properties it must have."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ips import selection
from ips.errors import ConfigError
from ips.selection import MODES, Selection

Rows = list[list[float]]
Chosen = list[tuple[int, float]]  # patch number and score, best first

# One image at a time, its patches in the order of looking: nothing is padded or masked here.


def naive_scores(rows: Rows) -> list[float]:
    """Softmax of each channel over the patches, then the mean over the channels."""
    attention = []
    for channel in zip(*rows, strict=True):
        powers = [math.exp(logit) for logit in channel]
        attention.append([power / sum(powers) for power in powers])
    return [sum(patch) / len(patch) for patch in zip(*attention, strict=True)]


def naive_top(candidates: list[int], logits: Rows, order: list[int], keep: int) -> Chosen:
    """The best ``keep`` candidates with their scores; the earlier in the order of two equals."""
    scores = naive_scores([logits[patch] for patch in candidates])
    pairs = zip(candidates, scores, strict=True)
    return sorted(pairs, key=lambda pair: (-pair[1], order.index(pair[0])))[:keep]


def naive_iterative(logits: Rows, order: list[int], keep: int, chunk: int) -> Chosen:
    """Eq. 1: P_M^{t+1} = Top-M of P_M^t and P_I^{t+1}, for T = ceil((N - M) / I) steps."""
    if not order:
        return []
    buffer = naive_top(order[:keep], logits, order, keep)
    for t in range(math.ceil((len(order) - keep) / chunk)):
        new = order[keep + t * chunk : keep + (t + 1) * chunk]
        buffer = naive_top([patch for patch, _ in buffer] + new, logits, order, keep)
    return buffer


def naive_exact(logits: Rows, order: list[int], keep: int, chunk: int) -> Chosen:
    return naive_top(order, logits, order, keep) if order else []


def naive_random(logits: Rows, order: list[int], keep: int, chunk: int) -> Chosen:
    return [(patch, 1 / len(order)) for patch in order[:keep]]


NAIVE = {"iterative": naive_iterative, "exact": naive_exact, "random": naive_random}


@dataclass
class Case:
    """Arguments of a selection; the logits of absent patches are NaN."""

    logits: Tensor
    mask: Tensor
    order: Tensor | None
    keep: int
    chunk: int

    def orders(self) -> list[list[int]]:
        """Of each image, the numbers of its present patches in the order of looking."""
        B, N = self.mask.shape
        order = torch.arange(N).expand(B, N) if self.order is None else self.order
        return [
            [patch for patch in row.tolist() if present[patch]]
            for row, present in zip(order, self.mask, strict=True)
        ]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Any B, N, M, I, S, mask and order, with some patches that are equal in every channel."""
    B, N, S = draw(st.integers(1, 4)), draw(st.integers(1, 14)), draw(st.integers(1, 5))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    different = draw(st.integers(1, 2 * N))
    pool = torch.randn(different, S, dtype=torch.float64, generator=generator) * 2
    logits = pool[torch.randint(different, (B, N), generator=generator)]
    mask = torch.rand(B, N, generator=generator) < draw(st.sampled_from([0.0, 0.3, 0.8, 1.0]))
    logits[~mask] = math.nan
    order = None
    if draw(st.booleans()):
        at_random = torch.rand(B, N, generator=generator)
        order = (at_random + 2 * ~mask).argsort(dim=1)  # absent ones last
    return Case(logits, mask, order, draw(st.integers(1, 16)), draw(st.integers(1, 16)))


def choose(mode: str, case: Case) -> Selection:
    chosen: Selection = getattr(selection, mode)(
        case.logits, keep=case.keep, chunk=case.chunk, mask=case.mask, order=case.order
    )
    return chosen


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=400)
@given(case=cases())
def test_indices_and_scores_are_those_of_the_naive_loop(mode: str, case: Case) -> None:
    chosen = choose(mode, case)
    K = min(case.keep, case.logits.shape[1])
    assert chosen.indices.shape == chosen.mask.shape == chosen.scores.shape == (len(case.mask), K)
    for b, order in enumerate(case.orders()):
        expected = NAIVE[mode](case.logits[b].tolist(), order, case.keep, case.chunk)
        k = len(expected)
        assert chosen.mask[b].tolist() == [True] * k + [False] * (K - k)
        assert chosen.indices[b].tolist() == [patch for patch, _ in expected] + [0] * (K - k)
        scores = [score for _, score in expected] + [0.0] * (K - k)
        assert chosen.scores[b].tolist() == pytest.approx(scores, abs=1e-12)


def without_ties(case: Case, channels: int) -> Tensor:
    """Other logits for the case, no two of a channel equal."""
    B, N, _ = case.logits.shape
    ranks = torch.rand(B, N, channels, generator=torch.Generator().manual_seed(N)).argsort(dim=1)
    return ranks.double() * torch.linspace(0.2, 0.3, channels, dtype=torch.float64)


@given(case=cases())
def test_one_channel_makes_iterative_exact_for_any_order_and_chunk(case: Case) -> None:
    B = len(case.logits)
    case.logits = without_ties(case, channels=1)
    iterative, exact = choose("iterative", case), choose("exact", case)
    for b in range(B):
        kept = exact.indices[b][exact.mask[b]].tolist()
        assert set(iterative.indices[b][iterative.mask[b]].tolist()) == set(kept)
        best = sorted(case.orders()[b], key=lambda patch: -case.logits[b, patch, 0].item())
        assert kept == best[: case.keep]


@given(case=cases())
def test_exact_is_free_of_the_order_where_nothing_is_equal(case: Case) -> None:
    case.logits = without_ties(case, channels=1)
    there = choose("exact", case)
    case.order = None
    assert torch.equal(there.indices, choose("exact", case).indices)


@pytest.mark.parametrize("mode", MODES)
@given(case=cases())
def test_a_masked_patch_is_as_if_absent(mode: str, case: Case) -> None:
    together = choose(mode, case)
    for b, order in enumerate(case.orders()):
        if not order:
            continue
        present = sorted(order)
        alone = getattr(selection, mode)(
            case.logits[b, present],
            keep=case.keep,
            chunk=case.chunk,
            order=torch.tensor([present.index(patch) for patch in order]),
        )
        assert torch.tensor(present)[alone.indices].tolist() == (
            together.indices[b][together.mask[b]].tolist()
        )
        torch.testing.assert_close(
            alone.scores, together.scores[b][together.mask[b]], rtol=0, atol=1e-12
        )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("keep", [5, 6, 100])
def test_few_patches_are_all_kept_and_padding_is_not(mode: str, keep: int) -> None:
    logits = torch.randn(2, 5, 3)
    mask = torch.tensor([[True] * 5, [True, True, False, False, False]])
    chosen = getattr(selection, mode)(logits, keep=keep, chunk=2, mask=mask)
    assert chosen.indices.shape == (2, 5)
    assert sorted(chosen.indices[0].tolist()) == [0, 1, 2, 3, 4]
    assert sorted(chosen.indices[1, :2].tolist()) == [0, 1]
    assert torch.equal(chosen.mask, mask)
    torch.testing.assert_close(chosen.scores.sum(dim=1), torch.ones(2))
    assert not chosen.scores[1, 2:].any()


@pytest.mark.parametrize("mode", ["iterative", "exact"])
@given(order=st.permutations(range(9)), keep=st.integers(1, 9), chunk=st.integers(1, 9))
def test_ties_are_broken_by_the_order(mode: str, order: list[int], keep: int, chunk: int) -> None:
    chosen = getattr(selection, mode)(
        torch.zeros(9, 4), keep=keep, chunk=chunk, order=torch.tensor(order)
    )
    assert chosen.indices.tolist() == order[:keep]


def test_a_tie_of_a_later_step_is_broken_by_the_order_too() -> None:
    """Beside a logit of 2,000 every other score is 0, so patch 1 is no longer above patch 0."""
    logits = torch.tensor([[0.0], [1.0], [-5.0], [2_000.0]])
    assert selection.iterative(logits, keep=2, chunk=1).indices.tolist() == [3, 0]
    backwards = selection.iterative(logits, keep=2, chunk=1, order=torch.tensor([1, 0, 2, 3]))
    assert backwards.indices.tolist() == [3, 1]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wrong", [{"keep": 0}, {"keep": -1}, {"chunk": 0}])
def test_nothing_to_keep_or_to_look_at_is_an_error(mode: str, wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(wrong))}={next(iter(wrong.values()))}"):
        getattr(selection, mode)(torch.zeros(4, 1), **{"keep": 1, "chunk": 1, **wrong})


@pytest.mark.parametrize("mode", MODES)
def test_selection_asks_for_no_gradient(mode: str) -> None:
    logits = torch.randn(6, 2, requires_grad=True)
    assert not getattr(selection, mode)(logits, keep=2, chunk=2).scores.requires_grad


def test_random_needs_no_logits() -> None:
    order = torch.tensor([3, 1, 0, 2])
    chosen = selection.random(torch.empty(4, 0), keep=2, order=order)
    assert chosen.indices.tolist() == [3, 1]
    assert chosen.scores.tolist() == [0.25, 0.25]


@given(case=cases())
def test_scores_sum_to_one_and_are_zero_where_masked(case: Case) -> None:
    a = selection.scores(case.logits, case.mask)
    assert not a[~case.mask].any()
    torch.testing.assert_close(a.sum(dim=1), case.mask.any(dim=1).double())


@given(
    counts=st.lists(st.integers(0, 20), min_size=1, max_size=4),
    padding=st.integers(0, 5),
    seed=st.integers(0, 2**32),
)
def test_the_shuffle_of_an_image_is_the_same_in_any_batch(
    counts: list[int], padding: int, seed: int
) -> None:
    N = max(counts) + padding
    mask = torch.arange(N) < torch.tensor(counts).unsqueeze(1)
    for row, count in zip(selection.shuffled(mask, seed=seed), counts, strict=True):
        alone = selection.shuffled(torch.ones(1, count, dtype=torch.bool), seed=seed)[0]
        assert torch.equal(row[:count], alone)
        assert sorted(alone.tolist()) == list(range(count))
        assert row[count:].tolist() == list(range(count, N))


def test_the_shuffle_depends_on_the_seed_and_on_nothing_else() -> None:
    mask = torch.ones(1, 50, dtype=torch.bool)
    first = selection.shuffled(mask, seed=1)
    torch.randn(7)
    assert torch.equal(first, selection.shuffled(mask, seed=1))
    assert not torch.equal(first, selection.shuffled(mask, seed=2))
