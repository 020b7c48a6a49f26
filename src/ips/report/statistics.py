"""What can be said of answers whose truth is known: intervals, confusions, ROC, calibration.

Letters: n images, C classes or labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, isnan, log, nan, sqrt

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int64]

_Z = 1.959963984540054  # 95 % of a normal distribution lie within so many standard deviations


@dataclass(frozen=True)
class Interval:
    """A score with its 95 % confidence interval; all three are nan where it is not defined."""

    value: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        """Whether the score is defined."""
        return not isnan(self.value)


def wilson(right: float, count: float) -> Interval:
    """The share ``right / count`` with Wilson's interval, which holds for few images too.

    >>> interval = wilson(8, 10)
    >>> round(interval.low, 3), round(interval.high, 3)
    (0.49, 0.943)
    """
    share, square = right / count, _Z**2 / count
    centre = (share + square / 2) / (1 + square)
    half = _Z / (1 + square) * sqrt(share * (1 - share) / count + square / (4 * count))
    return Interval(share, max(0.0, centre - half), min(1.0, centre + half))


def mean_share(right: Bools) -> Interval:
    """The mean of ``(n, C)`` answers, of which those of one image may go together."""
    shares = right.mean(axis=1)  # (n,)
    n = len(shares)
    variance = float(shares.var(ddof=1)) / n if n > 1 else 0.0
    return _spread(float(shares.mean()), variance, n)


def auc(scores: Floats, truth: Bools) -> Interval:
    """Area under the ROC curve, the mean over the columns of ``(n, C)`` scores.

    The variance is DeLong's; where there are several columns, that of the mean of what an image
    adds to each, to which a class of a single image adds nothing. Columns without both positives
    and negatives do not count.
    """
    areas: list[float] = []
    fewest: list[int] = []
    added = np.zeros(len(scores))  # (n,)
    for column, positive in zip(scores.T, truth.T, strict=True):
        m, n = int(positive.sum()), int((~positive).sum())
        if not m or not n:
            continue
        ranks = _midranks(column)
        # Of each positive the share of negatives below it, and the other way round.
        above = (ranks[positive] - _midranks(column[positive])) / n  # (m,)
        below = 1 - (ranks[~positive] - _midranks(column[~positive])) / m  # (n,)
        area = float(above.mean())
        areas.append(area)
        fewest.append(min(m, n))
        for group, shares in ((positive, above), (~positive, below)):
            k = len(shares)
            added[group] += (shares - area) / sqrt(max(k * (k - 1), 1))
    if not areas:
        return Interval(nan, nan, nan)
    variance = float(np.square(added / len(areas)).sum())
    count = len(areas) ** 2 / sum(1 / k for k in fewest)
    return _spread(float(np.mean(areas)), variance if count >= 2 else 0.0, count)


def _midranks(values: Floats) -> Floats:
    """Ranks from 1 on; equal values share the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Floats = (last - (counts - 1) / 2)[place]
    return ranks


def _spread(value: float, variance: float, count: float) -> Interval:
    """An interval that is symmetric in log-odds, and so stays between 0 and 1.

    Where nothing varies, as when all answers are right, the variance says nothing: it is then
    Wilson's interval for ``count`` images.
    """
    if variance < 1e-12 or not 0 < value < 1:
        return wilson(value * count, count)
    odds, half = log(value / (1 - value)), _Z * sqrt(variance) / (value * (1 - value))
    low, high = (1 / (1 + exp(-min(max(x, -700), 700))) for x in (odds - half, odds + half))
    return Interval(value, low, high)


def confusion(truth: Counts, answer: Counts, classes: int) -> Counts:
    """``(C, C)`` images by their true class (rows) and the class answered (columns)."""
    flat = np.bincount(truth * classes + answer, minlength=classes * classes)
    return flat.reshape(classes, classes).astype(np.int64)


@dataclass(frozen=True)
class LabelCounts:
    """Images by one label: it was there and found, there and missed, or found and not there."""

    found: int
    missed: int
    invented: int

    @property
    def recall(self) -> float:
        """Share found of the images that have it; nan if none does."""
        there = self.found + self.missed
        return self.found / there if there else nan

    @property
    def precision(self) -> float:
        """Share that have it of the images it was found in; nan if it was found in none."""
        said = self.found + self.invented
        return self.found / said if said else nan


def label_counts(truth: Bools, answer: Bools) -> list[LabelCounts]:
    """For each column of ``(n, C)`` labels."""
    pairs = zip(truth.T, answer.T, strict=True)
    return [
        LabelCounts(int((t & a).sum()), int((t & ~a).sum()), int((~t & a).sum())) for t, a in pairs
    ]


def roc(scores: Floats, truth: Bools) -> tuple[Floats, Floats]:
    """False and true positive rates ``(k,)`` at every threshold, from none to all positive."""
    order = np.argsort(-scores, kind="stable")
    scores, truth = scores[order], truth[order]
    last = np.append(np.diff(scores) != 0, True)  # of those with the same score
    hits = np.concatenate([[0], np.cumsum(truth)[last]])
    alarms = np.concatenate([[0], np.cumsum(~truth)[last]])
    return alarms / max(int(alarms[-1]), 1), hits / max(int(hits[-1]), 1)


@dataclass(frozen=True)
class Bin:
    """Answers of about the same probability: how many, what was said and what came true."""

    count: int
    said: float
    true: float


@dataclass(frozen=True)
class Calibration:
    """Bins of equal width over the probability, empty ones left out; and their mean error."""

    bins: list[Bin]
    error: float


def calibration(said: Floats, true: Bools, *, bins: int = 10) -> Calibration:
    """Whether what was said with probability p is true in a share p of cases.

    The error is the expected calibration error: the mean over all answers of how far a bin's mean
    probability is from its share of true ones.
    """
    place = np.minimum((said * bins).astype(np.int64), bins - 1)
    filled = [
        Bin(int(here.sum()), float(said[here].mean()), float(true[here].mean()))
        for number in range(bins)
        if (here := place == number).any()
    ]
    error = sum(b.count * abs(b.said - b.true) for b in filled) / len(said)
    return Calibration(filled, error)
