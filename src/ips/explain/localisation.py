"""Does a model look at what it should? Scores of patches against where the thing is.

Letters: N patches of an image, M of them kept.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def average_precision(scores: npt.ArrayLike, truth: npt.ArrayLike) -> float:
    """Mean precision over the true patches, in the order of their scores.

    The area under the curve of precision over recall in steps; patches of equal score count
    together. It is 1 where every true patch is above all others, and about the share of true ones
    for scores that mean nothing.

    Args:
        scores: ``(N,)``, higher for what is looked at more.
        truth: ``(N,)``, whether the thing is on the patch.

    Returns:
        not a number where no patch is true.
    """
    scores, truth = np.asarray(scores, dtype=np.float64), np.asarray(truth, dtype=bool)
    if scores.ndim != 1 or scores.shape != truth.shape:
        raise ValueError(f"scores {scores.shape} and truth {truth.shape}: expected (N,) of both")
    if np.isnan(scores).any():
        raise ValueError("a score is not a number")
    if not truth.any():
        return float("nan")
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    last = np.append(ranked[1:] != ranked[:-1], True)  # of those with equal scores
    hits = np.cumsum(truth[order])[last]
    precision = hits / (np.flatnonzero(last) + 1)
    return float((np.diff(hits, prepend=0) * precision).sum() / hits[-1])


def hit_rate(indices: npt.ArrayLike, truth: npt.ArrayLike) -> float:
    """Share of the M patches kept that have the thing on them.

    Args:
        indices: ``(M,)`` numbers of the patches kept.
        truth: ``(N,)``, whether the thing is on the patch.
    """
    indices, truth = np.asarray(indices), np.asarray(truth, dtype=bool)
    if not len(indices):
        raise ValueError("no patches kept: there is no rate of none")
    return float(truth[indices].mean())
