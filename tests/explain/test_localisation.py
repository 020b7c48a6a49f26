"""Average precision and hit rate against naive implementations."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ips.explain.localisation import average_precision, hit_rate


def naive(scores: list[int], truth: list[bool]) -> float:
    """Step down the thresholds: precision at each, weighted by the recall that it adds."""
    total, before, area = sum(truth), 0.0, 0.0
    for threshold in sorted(set(scores), reverse=True):
        above = [t for s, t in zip(scores, truth, strict=True) if s >= threshold]
        precision, recall = sum(above) / len(above), sum(above) / total
        area += (recall - before) * precision
        before = recall
    return area


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=40))
def test_average_precision_with_ties(rows: list[tuple[int, bool]]) -> None:
    scores, truth = [s for s, _ in rows], [t for _, t in rows]
    found = average_precision(np.array(scores, np.float32) / 7, truth)
    if any(truth):
        assert found == pytest.approx(naive(scores, truth), abs=1e-6)
    else:
        assert math.isnan(found)


def test_average_precision_by_hand() -> None:
    assert average_precision([0.9, 0.8, 0.1, 0.0], [True, True, False, False]) == 1
    assert average_precision([0.9, 0.8, 0.1], [False, True, True]) == pytest.approx(
        (1 / 2 + 2 / 3) / 2
    )
    # nothing told apart: the share of true ones, whatever their order
    assert average_precision([1, 1, 1, 1], [True, False, False, False]) == 0.25
    # a patch that was passed over has the score -inf, and comes last
    assert average_precision([-np.inf, 0.0, -np.inf], [True, True, False]) == pytest.approx(
        (1 + 2 / 3) / 2
    )


@given(st.lists(st.booleans(), min_size=1, max_size=30), st.randoms())
def test_hit_rate(truth: list[bool], random: Random) -> None:
    kept = random.sample(range(len(truth)), k=random.randint(1, len(truth)))
    assert hit_rate(kept, truth) == pytest.approx(sum(truth[i] for i in kept) / len(kept))


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(3,\) and truth \(2,\)"):
        average_precision([1, 2, 3], [True, False])
    with pytest.raises(ValueError, match="not a number"):
        average_precision([1, math.nan], [True, False])
    with pytest.raises(ValueError, match="no patches are selected"):
        hit_rate([], [True])
