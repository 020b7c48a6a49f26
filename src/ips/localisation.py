"""Is attention where the objects are? Scores of a task with 95 % intervals: pure functions.

Letters: n images, N patches of an image, K of them selected, O objects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ips.predictions import TaskPredictions
from ips.statistics import Bools, Floats, Integers, Interval, interval, mean, resampled, wilson

RATES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""False positives per image at which FROC takes the sensitivity, as CAMELYON16 does."""

CAVEAT = (
    "attention shows which patches an answer is based on; it is not a detection method, as the "
    "authors of the paper point out"
)

_NAMES = {
    "pointing": "top patch on an object",
    "pointing_right": "the same, correct answers only",
    "average_precision": "average precision of patches",
    "recall": "objects with a selected patch",
    "froc": "FROC, 1/4 to 8 false positives",
}
MEASURES = tuple(_NAMES)

CHANCE = (_NAMES["pointing"], _NAMES["average_precision"])
"""Names of the scores that are about `Localisation.chance` for random attention."""


@dataclass(frozen=True)
class ImageHits:
    """Where the attention of one task is on one image with O objects.

    Attributes:
        objects: ``(O,)`` highest attention of a selected patch on each object; -inf if none is.
        others: ``(k,)`` attention of the selected patches that are on no object.
        top: whether the patch with the highest attention is on an object.
        precision: average precision of all patches; nan if none is on an object.
        share: share of all patches that is on an object.
        all_selected: whether all N patches are selected.
    """

    objects: Floats
    others: Floats
    top: bool
    precision: float
    share: float
    all_selected: bool


def image_hits(
    on_objects: Sequence[Integers], *, indices: Integers, attention: Floats, all_attention: Floats
) -> ImageHits:
    """Compare the attention to an image with its objects.

    Args:
        on_objects: for each object, the indices of the patches that are on it.
        indices: ``(K,)`` indices of the selected patches.
        attention: ``(K,)`` their attention.
        all_attention: ``(N,)`` attention of all patches; 0 where a method has none.
    """
    hit = np.zeros(len(all_attention), bool)
    selected = np.full(len(all_attention), -np.inf)
    selected[indices] = attention
    for patches in on_objects:
        hit[patches] = True
    best = [float(selected[patches].max(initial=-np.inf)) for patches in on_objects]
    return ImageHits(
        objects=np.array(best),
        others=attention[~hit[indices]],
        top=bool(hit[indices[attention.argmax()]]),
        precision=average_precision(all_attention, hit),
        share=float(hit.mean()),
        all_selected=len(indices) == len(all_attention),
    )


@dataclass(frozen=True)
class Localisation:
    """How well the attention of a task agrees with the objects of the test images.

    Attributes:
        images: number of images with objects.
        objects: number of objects.
        chance: mean share of the patches of these images that is on an object.
        measures: scores by their key, see `MEASURES`; nan where one is undefined.
        sensitivity: share of the objects found at each of `RATES`.
    """

    images: int
    objects: int
    chance: float
    measures: dict[str, Interval]
    sensitivity: Sequence[float]

    def named(self) -> list[tuple[str, Interval]]:
        """The scores with their names for people."""
        return [(_NAMES[key], value) for key, value in self.measures.items()]

    @property
    def note(self) -> str:
        """How many objects the scores are about, and what a random patch would reach."""
        return (
            f"{self.objects:,} objects on {self.images:,} images; a random patch is on an object "
            f"in {100 * self.chance:.2g} % of cases"
        )

    def as_dict(self) -> dict[str, Any]:
        """The scores as plain values for JSON."""
        return {
            "images": self.images,
            "objects": self.objects,
            "chance": round(self.chance, 6),
            **{key: _as_dict(value) for key, value in self.measures.items()},
            "sensitivity": {
                f"{rate:g}": round(share, 6)
                for rate, share in zip(RATES, self.sensitivity, strict=True)
            },
            "caveat": CAVEAT,
        }

    @classmethod
    def from_dict(cls, values: Any) -> Localisation | None:
        """Read what `as_dict` wrote; None if it is something else."""
        try:
            return cls(
                images=int(values["images"]),
                objects=int(values["objects"]),
                chance=float(values["chance"]),
                measures={key: _from_dict(values[key]) for key in MEASURES},
                sensitivity=[float(values["sensitivity"][f"{rate:g}"]) for rate in RATES],
            )
        except (KeyError, OverflowError, TypeError, ValueError):
            return None


def notes(results: Mapping[str, Localisation]) -> list[str]:
    """The notes of all tasks as sentences; tasks with the same note share one."""
    tasks: dict[str, list[str]] = {}
    for task, result in results.items():
        tasks.setdefault(result.note, []).append(task)
    return [f"{', '.join(names)}: {note}" for note, names in tasks.items()]


def localise(found: Sequence[ImageHits | None], task: TaskPredictions) -> Localisation | None:
    """The scores of a task; None if no image is known to have objects.

    Args:
        found: for each of the n images, its comparison; None where objects are unknown.
        task: the predictions for these images.
    """
    known = np.array([hits is not None for hits in found])
    hits = [each for each in found if each is not None]
    counts = np.array([len(each.objects) for each in hits], dtype=np.int64)
    some = [each for each in hits if len(each.objects)]
    if not some:
        return None
    tops = np.array([each.top for each in some])
    correct = task.correct[known][counts > 0] if task.has_classes else np.zeros(len(tops), bool)
    precisions = np.array([each.precision for each in some])
    p = np.ones(len(hits))
    if task.has_classes:
        p = object_probability(task, known, counts > 0)[known]
    froc, sensitivity = _froc(hits, p)
    return Localisation(
        images=len(some),
        objects=int(counts.sum()),
        chance=float(np.mean([each.share for each in some])),
        measures={
            "pointing": wilson(int(tops.sum()), len(tops)),
            "pointing_right": _share(tops[correct]),
            "average_precision": mean(precisions[~np.isnan(precisions)]),
            "recall": _recall(some),
            "froc": froc,
        },
        sensitivity=sensitivity,
    )


def object_probability(task: TaskPredictions, known: Bools, with_objects: Bools) -> Floats:
    """Predicted probability ``(n,)`` that an image shows an object.

    That is the sum over the classes of which any image has objects. For a multilabel task, it is
    the probability of any such label, as if labels were independent.

    Args:
        known: ``(n,)``, whether the objects of an image are known.
        with_objects: whether each of these images has objects.
    """
    classes = task.labels[known][with_objects].any(axis=0)  # (C,)
    p = task.probabilities[:, classes]
    combined: Floats = 1 - (1 - p).prod(axis=1) if task.kind == "multilabel" else p.sum(axis=1)
    return combined


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
    """Share of the K selected patches that show the object.

    Args:
        indices: ``(K,)`` indices of the selected patches.
        truth: ``(N,)``, whether a patch shows the object.
    """
    indices, truth = np.asarray(indices), np.asarray(truth, dtype=bool)
    if not len(indices):
        raise ValueError("no patches are selected, so there is no hit rate")
    return float(truth[indices].mean())


def _share(hits: Bools) -> Interval:
    return wilson(int(hits.sum()), len(hits)) if len(hits) else Interval(nan, nan, nan)


def _recall(hits: Sequence[ImageHits]) -> Interval:
    """Share of the objects that a selected patch is on; undefined if all patches are selected.

    The variance is that between images, since the objects of an image are not independent.
    """
    if all(each.all_selected for each in hits):
        return Interval(nan, nan, nan)
    counts = np.array([len(each.objects) for each in hits])
    reached = np.array([(each.objects > -np.inf).sum() for each in hits])
    n, share = len(hits), float(reached.sum() / counts.sum())
    squares = float(np.square(reached - share * counts).sum())
    variance = squares / counts.sum() ** 2 * n / (n - 1) if n > 1 else 0.0
    return interval(share, variance, n)


def _froc(hits: Sequence[ImageHits], probabilities: Floats) -> tuple[Interval, list[float]]:
    """Mean sensitivity at `RATES`, and each of them.

    A detection is a selected patch; its score is the attention times the probability ``(n,)`` that
    the image shows an object. Several detections of an object count once. The others are false
    positives. The variance comes from a bootstrap over images with a fixed seed.
    """
    n = len(hits)
    missed = np.concatenate([each.objects == -np.inf for each in hits])
    owner = np.repeat(np.arange(n), [len(each.objects) for each in hits])
    scores = np.concatenate([each.objects for each in hits])
    scores = np.where(missed, -np.inf, np.where(missed, 0, scores) * probabilities[owner])
    false_owner = np.repeat(np.arange(n), [len(each.others) for each in hits])
    false = np.concatenate([each.others for each in hits]) * probabilities[false_owner]
    order = np.argsort(-false, kind="stable")
    false, false_owner = np.append(false[order], -np.inf), false_owner[order]

    def sensitivity(weights: Integers) -> list[float]:
        """At each of `RATES`, if every image counts ``weights`` times."""
        above = np.cumsum(weights[false_owner])  # false positives with at least this score
        first_too_many = np.searchsorted(above, np.array(RATES) * n, side="right")
        total = float(weights[owner].sum())
        if not total:
            return [nan] * len(RATES)
        found = [float(weights[owner[scores > false[i]]].sum()) for i in first_too_many]
        return [each / total for each in found]

    values = sensitivity(np.ones(n, dtype=np.int64))
    draws = [
        np.mean(sensitivity(np.bincount(rows, minlength=n)))
        for rows in resampled(np.zeros(n, dtype=np.int64))
    ]
    count = sum(len(each.objects) > 0 for each in hits)
    return interval(float(np.mean(values)), float(np.nanvar(draws)), count), values


def _as_dict(i: Interval) -> dict[str, float | None]:
    values = {"score": i.value, "low": i.low, "high": i.high}
    return {key: None if isnan(value) else round(value, 6) for key, value in values.items()}


def _from_dict(values: Any) -> Interval:
    numbers = [values[key] for key in ("score", "low", "high")]
    return Interval(*(nan if number is None else float(number) for number in numbers))
