"""Scores of test predictions with 95 % confidence intervals, and calibration.

Letters: n images, C classes or labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan, nan, sqrt

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit, ndtri
from scipy.stats import rankdata

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_Z = float(ndtri(0.975))  # 95 % of a normal distribution lie within this many standard deviations


@dataclass(frozen=True)
class Interval:
    """A score with its 95 % confidence interval; all three are nan where it is undefined."""

    value: float
    low: float
    high: float

    @property
    def defined(self) -> bool:
        return not isnan(self.value)


def wilson(successes: float, count: float) -> Interval:
    """The proportion ``successes / count`` with its Wilson interval, good for small counts too.

    Counts may be fractional, since `auc` needs an effective number of images; the function of
    scipy takes whole numbers only.

    >>> interval = wilson(8, 10)
    >>> round(interval.low, 3), round(interval.high, 3)
    (0.49, 0.943)
    """
    share, square = successes / count, _Z**2 / count
    centre = (share + square / 2) / (1 + square)
    half = _Z / (1 + square) * sqrt(share * (1 - share) / count + square / (4 * count))
    return Interval(share, max(0.0, centre - half), min(1.0, centre + half))


def label_accuracy(correct: Bools) -> Interval:
    """The mean of ``(n, C)`` label results, with the variance between images."""
    shares = correct.mean(axis=1)  # (n,)
    n = len(shares)
    variance = float(shares.var(ddof=1)) / n if n > 1 else 0.0
    return _interval(float(shares.mean()), variance, n)


def auc(scores: Floats, labels: Bools) -> Interval:
    """Area under the ROC curve, the mean over the columns of ``(n, C)`` scores.

    The variance is DeLong's. For several columns, it is the variance of the mean of the
    contributions of each image; a class with a single image contributes none. Columns without
    both positives and negatives are left out.
    """
    areas: list[float] = []
    smaller: list[int] = []  # size of the smaller group of each column
    contributions = np.zeros(len(scores))  # (n,)
    for column, positive in zip(scores.T, labels.T, strict=True):
        m, n = int(positive.sum()), int((~positive).sum())
        if not m or not n:
            continue
        ranks = rankdata(column)
        # The share of negatives below each positive, and of positives above each negative.
        above = (ranks[positive] - rankdata(column[positive])) / n  # (m,)
        below = 1 - (ranks[~positive] - rankdata(column[~positive])) / m  # (n,)
        area = float(above.mean())
        areas.append(area)
        smaller.append(min(m, n))
        for group, shares in ((positive, above), (~positive, below)):
            k = len(shares)
            contributions[group] += (shares - area) / sqrt(max(k * (k - 1), 1))
    if not areas:
        return Interval(nan, nan, nan)
    variance = float(np.square(contributions / len(areas)).sum())
    count = len(areas) ** 2 / sum(1 / k for k in smaller)  # effective number of images
    return _interval(float(np.mean(areas)), variance if count >= 2 else 0.0, count)


def _interval(value: float, variance: float, count: float) -> Interval:
    """An interval that is symmetric in log-odds, so that it stays between 0 and 1.

    A variance of 0, as for a perfect score, gives the Wilson interval of ``count`` images instead.
    """
    if variance < 1e-12 or not 0 < value < 1:
        return wilson(value * count, count)
    half = _Z * sqrt(variance) / (value * (1 - value))
    low, high = (float(expit(logit(value) + sign * half)) for sign in (-1, 1))
    return Interval(value, low, high)


@dataclass(frozen=True)
class Bin:
    """Predictions of similar probability: their mean probability, and the fraction correct."""

    count: int
    share: float  # of all predictions
    probability: float
    fraction: float


def calibration(probabilities: Floats, correct: Bools, *, bins: int = 10) -> list[Bin]:
    """The non-empty bins of equal width of ``(n,)`` probabilities, and how many are correct."""
    number = np.minimum((probabilities * bins).astype(np.int64), bins - 1)  # (n,)
    filled = (inside for inside in (number == i for i in range(bins)) if inside.any())
    return [
        Bin(int(i.sum()), float(i.mean()), float(probabilities[i].mean()), float(correct[i].mean()))
        for i in filled
    ]


def calibration_error(bins: list[Bin]) -> float:
    """The distance between probability and fraction of a bin, averaged over all predictions."""
    return sum(b.share * abs(b.probability - b.fraction) for b in bins)
