"""Scores of patches compared with the true locations of objects.

Letters: N patches of an image, M of them selected.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch


def average_precision(scores: npt.ArrayLike, truth: npt.ArrayLike) -> float:
    """Area under the precision-recall curve of patch scores, in steps.

    It is 1 if all positive patches score above all others, and about the share of positive
    patches for random scores.

    Args:
        scores: ``(N,)`` scores or attention of the patches; any real numbers, or -inf.
        truth: ``(N,)``, whether a patch shows the object.

    Returns:
        Average precision; nan if no patch is positive.
    """
    from scipy.stats import rankdata
    from torchmetrics.functional.classification import binary_average_precision

    scores, truth = np.asarray(scores, dtype=np.float64), np.asarray(truth, dtype=bool)
    if scores.ndim != 1 or scores.shape != truth.shape:
        raise ValueError(f"scores {scores.shape} and truth {truth.shape}: expected (N,) of both")
    if np.isnan(scores).any():
        raise ValueError("a score is not a number")
    if not truth.any():
        return float("nan")
    # Ranks, since torchmetrics takes scores between 0 and 1, and would make equal what is far out.
    ranks = torch.from_numpy(rankdata(scores, method="dense") / len(scores))
    return float(binary_average_precision(ranks, torch.from_numpy(truth).int()))


def hit_rate(indices: npt.ArrayLike, truth: npt.ArrayLike) -> float:
    """Share of the M selected patches that show the object.

    Args:
        indices: ``(M,)`` indices of the selected patches.
        truth: ``(N,)``, whether a patch shows the object.
    """
    indices, truth = np.asarray(indices), np.asarray(truth, dtype=bool)
    if not len(indices):
        raise ValueError("no patches are selected, so there is no hit rate")
    return float(truth[indices].mean())
