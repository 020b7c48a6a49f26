"""Numeric targets of synthetic slides: the area of abnormal nuclei is a dose that decides them.

The larger the area, the earlier the event: a Weibull time whose logarithm falls linearly with the
area. Follow-up ends at a random time, after which nothing is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ips.data.seeded import seeded_generator
from ips.data.synthetic.tissue_parts import Cluster

CLUSTERS = (0, 8)
"""Smallest and largest number of clusters on a slide; fewer if there is no room."""

_MONTHS = 60.0  # typical time without abnormal nuclei
_AREA = 6.0  # area that divides the time by e
_SHAPE = 12.0  # of the Weibull distribution: the higher, the less noise in the times
_FOLLOW_UP = 6.0, 48.0  # months, uniform
_TIMES = 1  # key of the random generator of times, so that it is not that of the drawing


@dataclass(frozen=True)
class Dose:
    """What clusters of abnormal nuclei do to a patient who does not exist.

    Attributes:
        clusters: number of clusters.
        area: area inside their outlines, in 1000 µm².
        months: time until the event or the end of the follow-up.
        event: whether the event was observed.
    """

    clusters: int
    area: float
    months: float
    event: bool


def draw_dose(clusters: Sequence[Cluster], *, mpp: float, seed: int, number: int) -> Dose:
    """The dose of a slide with these clusters, and a time that follows from it.

    Args:
        clusters: clusters of abnormal nuclei on the slide.
        mpp: micrometres per pixel.
        seed: random seed of the data set.
        number: number of the slide in the data set.
    """
    area = sum(_area(cluster) for cluster in clusters) * mpp**2 / 1000
    rng = seeded_generator(seed, number, 0, 0, _TIMES)
    time = _MONTHS * np.exp(-area / _AREA) * rng.exponential() ** (1 / _SHAPE)
    end = rng.uniform(*_FOLLOW_UP)
    return Dose(len(clusters), area, float(min(time, end)), bool(time <= end))


def _area(cluster: Cluster) -> float:
    """Area of an outline in square pixels, by the shoelace formula."""
    x, y = cluster.outline.T
    return abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1))) / 2
