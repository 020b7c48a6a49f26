"""Scores of predicted risks, and survival curves: pure functions on arrays.

Letters: n images.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

import numpy as np

from ips.statistics import Bools, Floats, Interval, interval


@dataclass(frozen=True)
class Pairs:
    """How many images each of n images can be compared with, and how many are in the right order.

    Two images are comparable if the one with the shorter time had the event. Their order is right
    if that one has the higher risk; equal risks count half.
    """

    comparable: Floats
    concordant: Floats


def concordant_pairs(risks: Floats, times: Floats, events: Floats) -> Pairs:
    """Compare every image with an event with those that were still under observation."""
    comparable, concordant = np.zeros(len(risks)), np.zeros(len(risks))
    for i in np.flatnonzero(events > 0):  # one by one, so that memory grows with n only
        later = (times > times[i]) | ((times == times[i]) & ~(events > 0))
        right = later * (0.5 * (risks[i] == risks) + (risks[i] > risks))
        comparable[i] += later.sum()
        concordant[i] += right.sum()
        comparable += later
        concordant += right
    return Pairs(comparable, concordant)


def concordance(risks: Floats, labels: Floats) -> Interval:
    """Harrell's concordance index of ``(n,)`` risks and ``(n, 2)`` times and events.

    The share of comparable pairs of images whose risks are in the order of their times. The
    variance comes from the influence of each image (infinitesimal jackknife).
    """
    pairs = concordant_pairs(risks, *labels.T)
    total = pairs.comparable.sum() / 2
    if not total:
        return Interval(nan, nan, nan)
    share = float(pairs.concordant.sum() / 2 / total)
    influence = (pairs.concordant - share * pairs.comparable) / total
    return interval(share, float(np.square(influence).sum()), int((pairs.comparable > 0).sum()))


@dataclass(frozen=True)
class Curve:
    """A Kaplan-Meier curve: the share without an event after each time, from (0, 1) on."""

    times: Floats
    shares: Floats

    def steps(self) -> tuple[Floats, Floats]:
        """The points of the curve as a line of steps."""
        return np.repeat(self.times, 2)[1:], np.repeat(self.shares, 2)[:-1]


def kaplan_meier(times: Floats, events: Floats) -> Curve:
    """The survival curve of ``(n,)`` times and events.

    >>> curve = kaplan_meier(np.array([1.0, 2, 2, 3]), np.array([1.0, 1, 0, 1]))
    >>> curve.times.tolist(), curve.shares.tolist()
    ([0.0, 1.0, 2.0, 3.0], [1.0, 0.75, 0.5, 0.0])
    """
    moments = np.unique(times)
    deaths = np.array([((times == t) & (events > 0)).sum() for t in moments])
    at_risk = np.array([(times >= t).sum() for t in moments])
    shares = np.cumprod(1 - deaths / at_risk)
    return Curve(np.concatenate([[0.0], moments]), np.concatenate([[1.0], shares]))


def log_rank(times: Floats, events: Floats, high: Bools) -> float:
    """The p-value of the log-rank test that two groups of images have the same survival.

    nan if it is undefined, such as without events or with an empty group.
    """
    from scipy.stats import chi2

    expected = variance = 0.0
    for t in np.unique(times[events > 0]):
        n, n_high = (times >= t).sum(), ((times >= t) & high).sum()
        d = ((times == t) & (events > 0)).sum()
        expected += d * n_high / n
        if n > 1:
            variance += d * (n_high / n) * (1 - n_high / n) * (n - d) / (n - 1)
    if variance <= 0:
        return nan
    observed = float(((events > 0) & high).sum())
    return float(chi2.sf((observed - expected) ** 2 / variance, 1))
