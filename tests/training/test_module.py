from __future__ import annotations

import pytest

from ips.training.module import learning_rate_factor


def test_warm_up_is_linear_and_ends_at_the_peak() -> None:
    factors = [learning_rate_factor(s, warmup=10, total=150) for s in range(10)]
    assert factors == pytest.approx([(s + 1) / 10 for s in range(10)])


def test_cosine_ends_at_a_thousandth() -> None:
    assert learning_rate_factor(9, warmup=10, total=150) == pytest.approx(1.0)
    assert learning_rate_factor(79, warmup=10, total=150) == pytest.approx(0.5005)
    assert learning_rate_factor(149, warmup=10, total=150) == pytest.approx(0.001)
    assert learning_rate_factor(150, warmup=10, total=150) == pytest.approx(0.001)


def test_it_only_falls_after_the_warm_up() -> None:
    factors = [learning_rate_factor(s, warmup=0, total=50) for s in range(51)]
    assert factors == sorted(factors, reverse=True)
