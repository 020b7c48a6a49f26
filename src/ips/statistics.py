"""Scores of predictions with 95 % confidence intervals, and calibration.

Letters: n images, C classes or labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isnan, nan, sqrt

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit, ndtri
from scipy.stats import rankdata

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]

_Z = float(ndtri(0.975))  # 95 % of a normal distribution lie within this many standard deviations
_DRAWS = 500  # of the bootstrap
_GROUP_DRAWS = 1000  # of the bootstrap over groups, whose quantiles are used


@dataclass(frozen=True)
class Interval:
    """A score with its 95 % confidence interval; all three are nan where it is undefined."""

    value: float
    low: float
    high: float

    @property
    def defined(self) -> bool:
        return not isnan(self.value)

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


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
    return mean(correct.mean(axis=1))


def mean(shares: Floats) -> Interval:
    """The mean of ``(n,)`` values between 0 and 1; undefined without any."""
    return ratio(shares, np.ones(len(shares)))


def ratio(parts: Floats, wholes: Floats) -> Interval:
    """The sum of ``(n,)`` parts, divided by that of their wholes, with the variance between images.

    The variance is that of leaving out one image at a time, so that a single image with most of the
    sum makes the interval wide. Undefined if all wholes are 0.

    >>> interval = ratio(np.array([0.9, 0.01]), np.array([0.9, 0.1]))  # an image that hardly counts
    >>> round(interval.value, 2)
    0.91
    """
    n, total = len(wholes), float(wholes.sum())
    if not total:
        return Interval(nan, nan, nan)
    value = float(parts.sum()) / total
    others = total - wholes  # (n,) without the image
    changes = (parts - value * wholes)[others > 0] / others[others > 0]
    count = total**2 / float(np.square(wholes).sum())  # images of equal weight that say as much
    return interval(value, (n - 1) / n * float(np.square(changes).sum()), count)


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
    count = _effective(np.array(smaller))
    return interval(float(np.mean(areas)), variance if count >= 2 else 0.0, count)


def auc_value(scores: Floats, labels: Bools) -> float:
    """`auc` without its interval, in a fraction of the time."""
    areas: list[float] = []
    for column, positive in zip(scores.T, labels.T, strict=True):
        above, below = column[positive], np.sort(column[~positive])  # (m,), (n,)
        if len(above) and len(below):
            smaller = np.searchsorted(below, above, "left").sum()
            at_most = np.searchsorted(below, above, "right").sum()
            areas.append(float(smaller + at_most) / (2 * len(above) * len(below)))
    return sum(areas) / len(areas) if areas else nan


def balanced_accuracy(correct: Bools, labels: Bools) -> Interval:
    """The mean over classes of the fraction correct, of ``(n,)`` results and ``(n, C)`` classes.

    Classes without images are left out.
    """
    counts = labels.sum(axis=0)
    right = (labels & correct[:, None]).sum(axis=0)
    right, counts = right[counts > 0], counts[counts > 0]
    value = float((right / counts).mean())
    return interval(value, _variance_of_classes(right, counts), _effective(counts))


def _variance_of_classes(right: Integers, counts: Integers) -> float:
    """Variance of the mean over C classes of the fraction correct.

    Every class counts one correct and one wrong image more, since a few images that are all correct
    do not make a class certain.
    """
    share = (right + 1) / (counts + 2)
    return float((share * (1 - share) / counts).sum()) / len(counts) ** 2


def macro_f1(predicted: Bools, labels: Bools, *, by_class: bool) -> Interval:
    """The mean over classes of the F1 score, of ``(n, C)`` predicted and true classes.

    Classes that are neither predicted nor true are left out. The variance comes from a bootstrap
    with a fixed seed; if every image has one class, it is at least that of `balanced_accuracy`,
    since images of a small class that are all alike do not vary when they are resampled.

    Args:
        by_class: resample the images of each class on their own; not for several labels per image.
    """
    if not (predicted.any() or labels.any()):
        return Interval(nan, nan, nan)
    strata = labels.argmax(axis=1) if by_class else np.zeros(len(labels), dtype=np.int64)
    values = [f1_score(predicted[rows], labels[rows]) for rows in resampled(strata)]
    variance, counts = float(np.nanvar(values)), labels.sum(axis=0)
    right, counts = (labels & predicted).sum(axis=0)[counts > 0], counts[counts > 0]
    if by_class:
        variance = max(variance, _variance_of_classes(right, counts))
    count = _effective(counts) if len(counts) else len(labels)
    return interval(f1_score(predicted, labels), variance, count)


def mean_error(errors: Floats) -> Interval:
    """The mean of ``(n,)`` absolute errors, with the variance between images."""
    value = float(errors.mean())
    half = _Z * float(errors.std(ddof=1)) / sqrt(len(errors)) if len(errors) > 1 else value
    return Interval(value, max(0.0, value - half), value + half)


def r_squared(predicted: Floats, labels: Floats) -> Interval:
    """Coefficient of determination of ``(n,)`` numbers: 1 minus the unexplained variance.

    Answering the mean of the labels has 0, and worse answers are negative. The interval comes from
    a bootstrap over images with a fixed seed. Undefined if all labels are equal.
    """
    value = r_squared_value(predicted, labels)
    if isnan(value):
        return Interval(nan, nan, nan)
    strata = np.zeros(len(labels), dtype=np.int64)
    draws = [r_squared_value(predicted[rows], labels[rows]) for rows in resampled(strata)]
    low, high = np.nanquantile(draws, [0.025, 0.975])
    return Interval(value, min(float(low), value), max(float(high), value))


def r_squared_value(predicted: Floats, labels: Floats) -> float:
    """`r_squared` without its interval."""
    total = float(np.square(labels - labels.mean()).sum())
    return 1 - float(np.square(predicted - labels).sum()) / total if total else nan


def pearson(predicted: Floats, labels: Floats) -> Interval:
    """Pearson's correlation of ``(n,)`` numbers, with Fisher's interval.

    Undefined for fewer than four images, or if predictions or labels are all equal.
    """
    a, b = predicted - predicted.mean(), labels - labels.mean()
    scale = sqrt(float(np.square(a).sum()) * float(np.square(b).sum()))
    if len(labels) < 4 or not scale:
        return Interval(nan, nan, nan)
    value = float(np.clip((a * b).sum() / scale, -1, 1))
    half = _Z / sqrt(len(labels) - 3)
    z = float(np.arctanh(np.clip(value, -1 + 1e-12, 1 - 1e-12)))
    return Interval(value, float(np.tanh(z - half)), max(value, float(np.tanh(z + half))))


def quadratic_kappa(predicted: Floats, labels: Floats) -> Interval:
    """Quadratic weighted kappa of ``(n,)`` grades: 1 minus squared error over that of chance.

    Chance draws both grades independently, with their frequencies. The interval comes from a
    bootstrap over images with a fixed seed. Undefined if all grades are the same one.
    """
    value = quadratic_kappa_value(predicted, labels)
    if isnan(value):
        return Interval(nan, nan, nan)
    strata = np.zeros(len(labels), dtype=np.int64)
    draws = [quadratic_kappa_value(predicted[rows], labels[rows]) for rows in resampled(strata)]
    low, high = np.nanquantile(draws, [0.025, 0.975])
    return Interval(value, min(float(low), value), max(float(high), value))


def quadratic_kappa_value(predicted: Floats, labels: Floats) -> float:
    """`quadratic_kappa` without its interval."""
    # The mean squared difference of all n² pairs of a prediction and a label.
    chance = predicted.var() + labels.var() + (predicted.mean() - labels.mean()) ** 2
    return 1 - float(np.square(predicted - labels).mean() / chance) if chance else nan


def f1_score(predicted: Bools, labels: Bools) -> float:
    """The F1 score of ``(n, C)`` classes, the mean over those that are predicted or true."""
    hits, total = (predicted & labels).sum(axis=0), predicted.sum(axis=0) + labels.sum(axis=0)
    return float((2 * hits[total > 0] / total[total > 0]).mean()) if total.any() else nan


def resampled(strata: Integers) -> Iterator[Integers]:
    """Row numbers ``(n,)``, drawn with replacement from those with the same stratum ``(n,)``."""
    order = np.argsort(strata, kind="stable")
    _, start, size = np.unique(strata[order], return_index=True, return_counts=True)
    first, sizes = np.repeat(start, size), np.repeat(size, size)  # (n,)
    rng = np.random.default_rng(0)
    for _ in range(_DRAWS):
        yield order[first + (rng.random(len(order)) * sizes).astype(np.int64)]


def bootstrap(score: Callable[[Integers], float], groups: Integers) -> Interval:
    """A score of n rows with the 2.5 % and 97.5 % quantiles of a bootstrap over groups.

    Whole groups are drawn with replacement, such as all images of a patient, with a fixed seed. A
    score that is the same in all draws, such as a perfect one, gets the Wilson interval of as many
    images as there are groups.

    Args:
        score: function of row numbers, which may occur several times; nan where it is undefined.
        groups: ``(n,)`` number of the group of each row.
    """
    value = score(np.arange(len(groups)))
    if isnan(value):
        return Interval(nan, nan, nan)
    order = np.argsort(groups, kind="stable")
    members = np.split(order, np.unique(groups[order], return_index=True)[1][1:])
    rng, draws = np.random.default_rng(0), [value]
    for _ in range(_GROUP_DRAWS):
        chosen = rng.integers(len(members), size=len(members))
        draws.append(score(np.concatenate([members[group] for group in chosen])))
    known = np.array([draw for draw in draws if not isnan(draw)])
    if known.max() - known.min() < 1e-9 and 0 <= value <= 1:
        return wilson(value * len(members), len(members))
    low, high = np.quantile(known, [0.025, 0.975])
    return Interval(value, min(float(low), value), max(float(high), value))


def _effective(counts: Integers) -> float:
    """Number of images that a mean over classes of ``(C,)`` images is as precise as."""
    return len(counts) ** 2 / float((1 / counts).sum())


def interval(value: float, variance: float, count: float) -> Interval:
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
