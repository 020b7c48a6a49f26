"""Concordance, survival curves and the log-rank test against naive or published numbers."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from ips.statistics import Floats, mean_error, pearson, r_squared
from ips.survival import concordance, kaplan_meier, log_rank


def made(count: int = 40, *, seed: int = 0) -> tuple[Floats, Floats]:
    """Risks, and times and events with ties, which agree with the risks more often than not."""
    rng = np.random.default_rng(seed)
    risks = np.round(rng.normal(size=count), 1)
    times = np.ceil(10 * rng.exponential(np.exp(-risks)))
    return risks, np.stack([times, rng.random(count) < 0.6], axis=1).astype(float)


def naive_concordance(risks: Floats, labels: Floats) -> float:
    right, comparable = 0.0, 0
    for i, j in combinations(range(len(risks)), 2):
        (a, died_a), (b, died_b) = labels[i], labels[j]
        if (b, -died_b) < (a, -died_a):
            i, j, (a, died_a), (b, died_b) = j, i, (b, died_b), (a, died_a)
        if not died_a or (a == b and died_b):
            continue  # nobody knows which came first
        comparable += 1
        right += 0.5 if risks[i] == risks[j] else risks[i] > risks[j]
    return right / comparable


def test_concordance_is_the_share_of_pairs_in_the_right_order() -> None:
    risks, labels = made()
    found = concordance(risks, labels)
    assert found.value == pytest.approx(naive_concordance(risks, labels))
    assert found.low < found.value < found.high
    assert concordance(-risks, labels).value == pytest.approx(1 - found.value)
    assert concordance(np.zeros(40), labels).value == 0.5
    assert not concordance(risks, labels * [1, 0]).defined  # no events


def test_the_interval_of_concordance_is_like_that_of_a_bootstrap() -> None:
    risks, labels = made(60)
    found, rng = concordance(risks, labels), np.random.default_rng(1)
    draws = [rng.integers(0, 60, 60) for _ in range(300)]
    low, high = np.quantile([concordance(risks[d], labels[d]).value for d in draws], [0.025, 0.975])
    assert found.low == pytest.approx(low, abs=0.04)
    assert found.high == pytest.approx(high, abs=0.04)


def test_a_survival_curve_steps_down_at_events_only() -> None:
    # Remission times of 6-mercaptopurine (Freireich et al. 1963), with the published curve.
    times = [6, 6, 6, 6, 7, 9, 10, 10, 11, 13, 16, 17, 19, 20, 22, 23, 25, 32, 32, 34, 35]
    events = [1, 1, 1, 0, 1, 0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]
    curve = kaplan_meier(np.array(times, float), np.array(events, float))
    shares = dict(zip(curve.times.tolist(), curve.shares.round(3).tolist(), strict=True))
    assert [shares[t] for t in (0, 6, 7, 9, 10, 13, 16, 22, 23, 35)] == [
        *(1, 0.857, 0.807, 0.807, 0.753, 0.69, 0.627, 0.538, 0.448, 0.448)
    ]
    x, y = curve.steps()
    assert len(x) == len(y)
    assert (np.diff(y) <= 0).all()


def test_the_log_rank_test_tells_groups_apart() -> None:
    risks, labels = made(200)
    times, events = labels.T
    assert log_rank(times, events, risks > 0) < 0.001
    assert log_rank(times, events, np.arange(200) % 2 == 0) > 0.05
    assert np.isnan(log_rank(times, events, np.zeros(200, dtype=bool)))
    assert np.isnan(log_rank(times, 0 * events, risks > 0))


def test_scores_of_numbers() -> None:
    rng = np.random.default_rng(0)
    labels = rng.normal(50, 10, 80)
    predicted = labels + rng.normal(0, 4, 80)
    r2, r = r_squared(predicted, labels), pearson(predicted, labels)
    residual = ((predicted - labels) ** 2).sum() / ((labels - labels.mean()) ** 2).sum()
    assert r2.value == pytest.approx(1 - residual)
    assert r.value == pytest.approx(np.corrcoef(predicted, labels)[0, 1])
    for found in (r2, r, mean_error(np.abs(predicted - labels))):
        assert found.low < found.value < found.high
    assert r_squared(np.full(80, labels.mean()), labels).value == pytest.approx(0)
    assert not r_squared(predicted, np.ones(80)).defined
    assert not pearson(np.ones(80), labels).defined
