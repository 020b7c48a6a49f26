"""Statistics against hand-computed values, naive loops, scipy and torchmetrics."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from torchmetrics.functional.classification import binary_calibration_error

from ips.statistics import (
    Bools,
    Floats,
    Integers,
    auc,
    auc_value,
    balanced_accuracy,
    bootstrap,
    calibration,
    calibration_error,
    f1_score,
    label_accuracy,
    macro_f1,
    mean,
    ratio,
    wilson,
)


def pairwise_auc(scores: Floats, truth: Bools) -> float:
    """How often a positive scores above a negative; a tie counts half."""
    wins = [1.0 if p > n else 0.5 if p == n else 0.0 for p in scores[truth] for n in scores[~truth]]
    return float(np.mean(wins))


def delong(scores: Floats, truth: Bools) -> float:
    """The variance of the area, as DeLong, DeLong and Clarke-Pearson (1988) write it."""
    positive, negative = scores[truth], scores[~truth]
    above = [np.mean([(p > n) + 0.5 * (p == n) for n in negative]) for p in positive]
    below = [np.mean([(p > n) + 0.5 * (p == n) for p in positive]) for n in negative]
    return float(np.var(above, ddof=1) / len(positive) + np.var(below, ddof=1) / len(negative))


def width_in_odds(low: float, high: float) -> float:
    return float(np.log(high / (1 - high)) - np.log(low / (1 - low)))


def column(*values: float) -> Floats:
    return np.array(values, dtype=np.float64)[:, None]


class TestRatio:
    def test_its_interval_covers_the_ratio_of_sums(self) -> None:
        rng = np.random.default_rng(0)
        share = rng.random((2000, 60))
        wholes = rng.random((2000, 60)) ** 2
        parts = wholes * (1 - share * wholes)  # large wholes lose more, so that weights matter
        true = float(parts.sum() / wholes.sum())
        found = [ratio(*pair) for pair in zip(parts, wholes, strict=True)]
        assert np.mean([i.low <= true <= i.high for i in found]) == pytest.approx(0.95, abs=0.02)
        assert abs(np.mean([i.value for i in found]) - true) < 0.002

    def test_one_image_with_most_of_the_sum_is_not_certain(self) -> None:
        found = ratio(np.array([0.81, 0.02, 0.01, 0.015]), np.array([0.9, 0.02, 0.02, 0.02]))
        assert found.value == pytest.approx(0.891, abs=0.001)
        assert found.low < 0.6
        assert mean(np.array([0.2, 0.5, 0.9])) == ratio(np.array([0.2, 0.5, 0.9]), np.ones(3))

    def test_images_without_attention_say_nothing(self) -> None:
        assert not ratio(np.zeros(3), np.zeros(3)).defined
        assert not ratio(np.zeros(0), np.zeros(0)).defined
        alone = ratio(np.array([0.9, 0.0]), np.array([0.9, 0.0]))
        assert alone == wilson(1, 1)  # as uncertain as one image


class TestWilson:
    def test_a_known_interval(self) -> None:
        interval = wilson(8, 10)
        assert interval.value == 0.8
        assert interval.low == pytest.approx(0.4901625, abs=1e-6)
        assert interval.high == pytest.approx(0.9433178, abs=1e-6)

    @given(st.integers(1, 500), st.data())
    def test_interval_equals_that_of_scipy(self, n: int, data: st.DataObject) -> None:
        successes = data.draw(st.integers(0, n))
        expected = binomtest(successes, n).proportion_ci(method="wilson")
        interval = wilson(successes, n)
        assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))

    def test_a_perfect_score_has_an_interval(self) -> None:
        assert wilson(10, 10).low == pytest.approx(0.7224672, abs=1e-6)


class TestArea:
    def test_ties_count_half(self) -> None:
        scores, truth = column(0.9, 0.5, 0.5, 0.5, 0.1), np.array([1, 1, 0, 1, 0]) == 1
        # of six pairs: four are in order and two tie
        assert auc(scores, truth[:, None]).value == pytest.approx(5 / 6)

    @given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=4, max_size=30))
    def test_auc_is_the_share_of_ordered_pairs(self, pairs: list[tuple[int, bool]]) -> None:
        scores = np.array([score / 6 for score, _ in pairs])
        truth = np.array([label for _, label in pairs])
        interval = auc(scores[:, None], truth[:, None])
        if truth.all() or not truth.any():
            assert not interval.defined
            assert np.isnan(auc_value(scores[:, None], truth[:, None]))
            return
        assert interval.value == pytest.approx(pairwise_auc(scores, truth))
        assert auc_value(scores[:, None], truth[:, None]) == pytest.approx(interval.value)
        assert 0 <= interval.low <= interval.value + 1e-9
        assert interval.value - 1e-9 <= interval.high <= 1

    def test_variance_equals_delongs(self) -> None:
        rng = np.random.default_rng(0)
        truth = rng.random(40) < 0.4
        scores = np.round(rng.normal(size=40) + truth, 1)  # with ties
        interval = auc(scores[:, None], truth[:, None])
        sigma = delong(scores, truth) ** 0.5 / (interval.value * (1 - interval.value))
        assert width_in_odds(interval.low, interval.high) == pytest.approx(2 * 1.959964 * sigma)

    def test_several_columns_are_averaged(self) -> None:
        rng = np.random.default_rng(1)
        truth = rng.random((30, 3)) < 0.5
        truth[:, 2] = True  # without a negative it does not count
        scores = rng.random((30, 3)) + 0.3 * truth
        alone = [auc(scores[:, [i]], truth[:, [i]]) for i in range(2)]
        both = auc(scores, truth)
        assert both.value == pytest.approx(np.mean([area.value for area in alone]))
        assert auc_value(scores, truth) == pytest.approx(both.value)
        # the same column twice says no more than once
        twice = auc(scores[:, [0, 0]], truth[:, [0, 0]])
        assert (twice.low, twice.high) == pytest.approx((alone[0].low, alone[0].high))

    def test_complete_separation_has_an_interval(self) -> None:
        interval = auc(column(0.1, 0.2, 0.8, 0.9), np.array([[0], [0], [1], [1]]) == 1)
        assert interval.value == 1
        assert interval.low == wilson(2, 2).low

    def test_a_class_of_one_image_does_not_dominate_the_interval_of_the_mean(self) -> None:
        rng = np.random.default_rng(3)
        truth = np.zeros((60, 3), dtype=bool)
        truth[np.arange(60), [2] + [0, 1] * 29 + [0]] = True
        scores = rng.normal(size=truth.shape) + 2 * truth
        alone, mean = auc(scores[:, 2:], truth[:, 2:]), auc(scores, truth)
        assert alone.high - alone.low > 0.5
        assert mean.high - mean.low < 0.2


def test_correlated_labels_of_an_image_widen_the_interval() -> None:
    apart = np.random.default_rng(0).random((40, 4)) < 0.8
    together = np.repeat(apart[:, :1], 4, axis=1)
    interval = label_accuracy(together)
    assert interval.value == pytest.approx(apart[:, 0].mean())
    narrow = label_accuracy(apart)
    assert interval.high - interval.low > 1.5 * (narrow.high - narrow.low)
    assert label_accuracy(np.ones((9, 3), dtype=bool)).low == wilson(9, 9).low


class TestBalancedAccuracy:
    def test_every_class_counts_the_same(self) -> None:
        labels = np.eye(3, dtype=bool)[[0] * 8 + [1] * 2]  # the third class has no images
        correct = np.array([True] * 6 + [False] * 2 + [True, False])
        assert balanced_accuracy(correct, labels).value == pytest.approx((0.75 + 0.5) / 2)

    def test_a_small_class_that_is_all_correct_is_not_certain(self) -> None:
        def width(small: int) -> float:
            labels = np.eye(2, dtype=bool)[[0] * 100 + [1] * small]
            correct = np.array([True] * 80 + [False] * 20 + [True] * small)
            interval = balanced_accuracy(correct, labels)
            return interval.high - interval.low

        assert width(3) > 2 * width(100)

    def test_the_interval_covers_the_true_value(self) -> None:
        rng = np.random.default_rng(0)
        labels = np.eye(2, dtype=bool)[[0] * 60 + [1] * 12]
        chances = np.where(labels[:, 1], 0.6, 0.9)
        found = [balanced_accuracy(rng.random(72) < chances, labels) for _ in range(400)]
        assert np.mean([i.low <= 0.75 <= i.high for i in found]) > 0.92


class TestMacroF1:
    def test_by_hand(self) -> None:
        labels, predicted = (np.eye(4, dtype=bool)[c] for c in ([0, 0, 0, 1], [0, 0, 1, 2]))
        # 2 * 2 / 5 for the first class, 0 for the next two; the last is neither true nor predicted
        assert f1_score(predicted, labels) == pytest.approx(0.8 / 3)
        interval = macro_f1(predicted, labels, by_class=True)
        assert interval.value == f1_score(predicted, labels)
        assert interval == macro_f1(predicted, labels, by_class=True)  # the same resamples

    @pytest.mark.parametrize("predicted", [[0] * 9 + [1], [0] * 10])
    def test_predictions_without_variance_have_an_interval(self, predicted: list[int]) -> None:
        labels = np.eye(2, dtype=bool)[[0] * 9 + [1]]
        interval = macro_f1(np.eye(2, dtype=bool)[predicted], labels, by_class=True)
        assert interval.high - interval.low > 0.3

    def test_few_images_make_a_wide_interval(self) -> None:
        labels = np.eye(4, dtype=bool)[[0, 0, 0, 1, 1, 2, 2, 3]]
        predicted = np.eye(4, dtype=bool)[[0, 0, 0, 0, 0, 0, 0, 3]]
        interval = macro_f1(predicted, labels, by_class=True)
        assert interval.low < 0.2
        assert interval.high > 0.6

    def test_the_interval_covers_the_true_value(self) -> None:
        rng = np.random.default_rng(0)
        classes = np.array([0] * 60 + [1] * 30)
        labels = np.eye(2, dtype=bool)[classes]
        true = (2 * 48 / (60 + 48 + 9) + 2 * 21 / (30 + 21 + 12)) / 2  # 80 % and 70 % correct
        covered = 0
        for _ in range(60):
            right = rng.random(90) < np.where(classes, 0.7, 0.8)
            predicted = np.eye(2, dtype=bool)[np.where(right, classes, 1 - classes)]
            interval = macro_f1(predicted, labels, by_class=True)
            covered += interval.low <= true <= interval.high
        assert covered > 52

    def test_undefined_without_any_label(self) -> None:
        nothing = np.zeros((3, 2), dtype=bool)
        assert not macro_f1(nothing, nothing, by_class=False).defined


def test_calibration_by_hand() -> None:
    probabilities = np.array([0.62, 0.66, 0.95, 1.0])
    correct = np.array([True, False, True, True])
    found = calibration(probabilities, correct)
    # two predictions at 0.64 of which half are correct, two at 0.975 that both are
    assert [(b.count, b.fraction) for b in found] == [(2, 0.5), (2, 1.0)]
    assert [b.probability for b in found] == pytest.approx([0.64, 0.975])
    assert calibration_error(found) == pytest.approx((2 * 0.14 + 2 * 0.025) / 4)


@pytest.mark.parametrize("count", [1, 7, 300])
def test_calibration_error_is_that_of_torchmetrics(count: int) -> None:
    rng = np.random.default_rng(count)
    probabilities = rng.random(count)
    correct = rng.random(count) < probabilities**2
    expected = binary_calibration_error(
        torch.from_numpy(probabilities), torch.from_numpy(correct).int(), n_bins=10
    )
    error = calibration_error(calibration(probabilities, correct))
    assert error == pytest.approx(float(expected), abs=1e-6)


class TestBootstrapOverGroups:
    VALUES = np.random.default_rng(1).random(40)

    def score(self, rows: Integers) -> float:
        return float(self.VALUES[rows % 40].mean())

    def test_copies_of_an_image_in_one_group_tell_nothing_new(self) -> None:
        alone = bootstrap(self.score, np.arange(40))
        copies = bootstrap(self.score, np.tile(np.arange(40), 5))
        independent = bootstrap(self.score, np.arange(200))
        assert (copies.low, copies.high) == pytest.approx((alone.low, alone.high))
        assert independent.high - independent.low < 0.6 * (copies.high - copies.low)

    def test_it_is_about_the_normal_interval_of_a_mean(self) -> None:
        found = bootstrap(self.score, np.arange(40))
        half = 1.96 * float(self.VALUES.std()) / 40**0.5
        assert found.value == pytest.approx(self.VALUES.mean())
        assert (found.high - found.low) / 2 == pytest.approx(half, rel=0.1)

    def test_a_perfect_score_is_not_certain(self) -> None:
        groups = np.repeat(np.arange(8), 10)
        found = bootstrap(lambda rows: 1.0, groups)
        assert found == wilson(8, 8)

    def test_undefined_scores(self) -> None:
        assert not bootstrap(lambda rows: float("nan"), np.arange(3)).defined
        # of draws without both classes
        labels = np.array([0.0, 1.0])
        found = bootstrap(lambda rows: 0.5 if np.ptp(labels[rows]) else float("nan"), np.arange(2))
        assert found == wilson(1, 2)
