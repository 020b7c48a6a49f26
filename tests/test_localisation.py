"""Scores of attention against objects: by hand, and against naive implementations."""

from __future__ import annotations

import json
import math
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ips.localisation import (
    CAVEAT,
    MEASURES,
    RATES,
    ImageHits,
    Localisation,
    average_precision,
    hit_rate,
    image_hits,
    localise,
    object_probability,
)
from ips.predictions import TaskPredictions
from ips.tasks import Classification, ClassKind


def naive(scores: list[int], truth: list[bool]) -> float:
    """Step down the thresholds: precision at each, weighted by the recall that it adds."""
    total, before, area = sum(truth), 0.0, 0.0
    for threshold in sorted(set(scores), reverse=True):
        above = [t for s, t in zip(scores, truth, strict=True) if s >= threshold]
        precision, recall = sum(above) / len(above), sum(above) / total
        area += (recall - before) * precision
        before = recall
    return area


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=40))
def test_average_precision_with_ties(rows: list[tuple[int, bool]]) -> None:
    scores, truth = [s for s, _ in rows], [t for _, t in rows]
    found = average_precision(np.array(scores, np.float32) / 7, truth)
    if any(truth):
        assert found == pytest.approx(naive(scores, truth), abs=1e-6)
    else:
        assert math.isnan(found)


def test_average_precision_by_hand() -> None:
    assert average_precision([0.9, 0.8, 0.1, 0.0], [True, True, False, False]) == 1
    assert average_precision([0.9, 0.8, 0.1], [False, True, True]) == pytest.approx(
        (1 / 2 + 2 / 3) / 2
    )
    # nothing told apart: the share of true ones, whatever their order
    assert average_precision([1, 1, 1, 1], [True, False, False, False]) == 0.25
    # a patch that was passed over has the score -inf, and comes last
    assert average_precision([-np.inf, 0.0, -np.inf], [True, True, False]) == pytest.approx(
        (1 + 2 / 3) / 2
    )


@given(st.lists(st.booleans(), min_size=1, max_size=30), st.randoms())
def test_hit_rate(truth: list[bool], random: Random) -> None:
    kept = random.sample(range(len(truth)), k=random.randint(1, len(truth)))
    assert hit_rate(kept, truth) == pytest.approx(sum(truth[i] for i in kept) / len(kept))


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(3,\) and truth \(2,\)"):
        average_precision([1, 2, 3], [True, False])
    with pytest.raises(ValueError, match="not a number"):
        average_precision([1, math.nan], [True, False])
    with pytest.raises(ValueError, match="no patches are selected"):
        hit_rate([], [True])


def numbers(*values: float) -> npt.NDArray[np.float64]:
    return np.array(values, dtype=np.float64)


def hits(objects: list[float], others: list[float], **changes: Any) -> ImageHits:
    values: dict[str, Any] = {"top": False, "precision": 0.5, "share": 0.1, "all_selected": False}
    return ImageHits(numbers(*objects), numbers(*others), **(values | changes))


def predicted(
    probabilities: list[list[float]], labels: list[list[int]], kind: ClassKind = "multiclass"
) -> TaskPredictions:
    task = Classification(kind, len(labels[0]))
    return TaskPredictions("sign", task, np.array(labels) == 1, np.array(probabilities))


def sure(count: int) -> TaskPredictions:
    """Images of class 1, all predicted correctly and with certainty."""
    return predicted([[0.0, 1.0]] * count, [[0, 1]] * count)


def test_hits_of_an_image() -> None:
    # Six patches, of which 4, 0 and 5 are selected. Object a is on the patches 0 and 1, b on 2
    # and 5, c on 3, which is not selected.
    found = image_hits(
        [np.array([0, 1]), np.array([2, 5]), np.array([3])],
        indices=np.array([4, 0, 5]),
        attention=numbers(0.5, 0.2, 0.3),
        all_attention=numbers(0.2, 0.1, 0.1, 0.05, 0.5, 0.3),
    )
    assert found.objects.tolist() == [0.2, 0.3, -np.inf]
    assert found.others.tolist() == [0.5]
    assert not found.top
    assert not found.all_selected
    assert found.share == pytest.approx(5 / 6)
    # Precision 1/2 at the second patch, then 2/3, 4/5 of two equal ones, and 5/6.
    expected = (1 / 2 + 2 / 3 + 2 * 4 / 5 + 5 / 6) / 5
    assert found.precision == pytest.approx(expected, abs=1e-6)


def test_hits_of_an_image_without_objects() -> None:
    attention = numbers(0.4, 0.6)
    found = image_hits([], indices=np.array([1, 0]), attention=attention, all_attention=np.zeros(2))
    assert len(found.objects) == 0
    assert found.others.tolist() == [0.4, 0.6]
    assert found.all_selected
    assert math.isnan(found.precision)


def test_pointing_game() -> None:
    found = [hits([0.5], [], top=True), hits([0.5], []), hits([0.5], [], top=True), hits([], [0.5])]
    task = predicted([[0.1, 0.9], [0.1, 0.9], [0.9, 0.1], [0.9, 0.1]], [[0, 1]] * 3 + [[1, 0]])
    result = localise(found, task)
    assert result is not None
    assert result.images == result.objects == 3
    assert result.measures["pointing"].value == pytest.approx(2 / 3)
    assert result.measures["pointing_right"].value == 1 / 2  # the third answer is wrong


def test_recall_counts_objects() -> None:
    found = [hits([0.5, -np.inf, 0.1], []), hits([-np.inf], []), hits([], [0.1])]
    result = localise(found, sure(3))
    assert result is not None
    recall = result.measures["recall"]
    assert recall.value == 2 / 4
    assert recall.low < 2 / 4 < recall.high


def test_no_recall_if_all_patches_are_selected() -> None:
    result = localise([hits([0.5], [0.1], all_selected=True)], sure(1))
    assert result is not None
    assert not result.measures["recall"].defined
    assert result.as_dict()["recall"] == {"score": None, "low": None, "high": None}


def test_precision_is_a_mean_over_images_with_a_patch_on_an_object() -> None:
    found = [
        hits([0.5], [], precision=1.0, share=0.2),
        hits([0.5], [], precision=0.5, share=0.1),
        hits([-np.inf], [0.5], precision=math.nan, share=0.0),  # between the patches
        hits([], [0.5], precision=math.nan, share=0.0),
        None,
    ]
    result = localise(found, sure(5))
    assert result is not None
    assert result.measures["average_precision"].value == 0.75
    assert result.chance == pytest.approx(0.1)
    assert "3 objects on 3 images; a random patch is on an object in 10 % of cases" in result.note


def test_froc_by_hand() -> None:
    # Two images. The objects have the scores 0.9, 0.5 and 0.1; false positives 0.8, 0.6, 0.3, 0.2.
    found = [hits([0.9, 0.1], [0.8, 0.3]), hits([0.5], [0.6, 0.2])]
    result = localise(found, sure(2))
    assert result is not None
    # One false positive (0.5 per image): only scores above 0.6. Two: above 0.3. All four: all.
    assert list(result.sensitivity) == pytest.approx([1 / 3, 1 / 3, 2 / 3, 1, 1, 1])
    assert result.measures["froc"].value == pytest.approx((1 / 3 + 1 / 3 + 2 / 3 + 3) / 6)


def naive_sensitivity(found: list[ImageHits], p: list[float], rate: float) -> float:
    """Lower the threshold as long as there are few enough false positives."""
    objects = [q * v for h, q in zip(found, p, strict=True) for v in h.objects if v > -np.inf]
    false = [q * v for h, q in zip(found, p, strict=True) for v in h.others]
    best = 0
    for threshold in {*objects, *false}:
        if sum(v >= threshold for v in false) <= rate * len(found):
            best = max(best, sum(v >= threshold for v in objects))
    return best / sum(len(h.objects) for h in found)


attentions = st.lists(st.integers(1, 9), max_size=12)


@given(st.lists(st.tuples(attentions, attentions, st.sampled_from([0.25, 0.5, 1.0])), min_size=1))
@settings(max_examples=40)
def test_froc_with_ties(rows: list[tuple[list[int], list[int], float]]) -> None:
    found = [hits([v if v > 2 else -np.inf for v in a], [*b]) for a, b, _ in rows]
    p = [q for _, _, q in rows]
    result = localise(found, predicted([[1 - q, q] for q in p], [[0, 1]] * len(p)))
    if not any(a for a, _, _ in rows):
        assert result is None
        return
    assert result is not None
    expected = [naive_sensitivity(found, p, rate) for rate in RATES]
    assert list(result.sensitivity) == pytest.approx(expected)


def test_a_detection_counts_less_if_the_model_sees_no_object() -> None:
    found = [hits([0.5], []), hits([], [0.9] * 20)]
    unsure = predicted([[0.1, 0.9], [0.1, 0.9]], [[0, 1], [1, 0]])
    right = predicted([[0.1, 0.9], [0.9, 0.1]], [[0, 1], [1, 0]])
    sensitivities = []
    for task in (unsure, right):
        result = localise(found, task)
        assert result is not None
        sensitivities.append(result.sensitivity[0])
    assert sensitivities == [0, 1]


def test_probability_of_an_object() -> None:
    known, some = np.array([True, True, False]), np.array([True, False])
    p = [[0.2, 0.3, 0.5], [0.7, 0.2, 0.1], [0.6, 0.1, 0.3]]
    labels = [[0, 1, 0], [1, 0, 0], [0, 0, 1]]
    found = object_probability(predicted(p, labels), known, some)
    assert found == pytest.approx([0.3, 0.2, 0.1])  # no image of the third class has objects
    labels = [[0, 1, 1], [0, 0, 0], [1, 1, 1]]
    found = object_probability(predicted(p, labels, "multilabel"), known, some)
    assert found == pytest.approx([1 - 0.7 * 0.5, 1 - 0.8 * 0.9, 1 - 0.9 * 0.7])


def test_without_objects_there_are_no_scores() -> None:
    assert localise([None, None], sure(2)) is None
    assert localise([hits([], [0.5])], sure(1)) is None


def test_scores_are_read_as_they_were_written() -> None:
    result = localise([hits([0.5], [0.6], top=True), hits([0.5], [], precision=1.0)], sure(2))
    assert result is not None
    written = json.loads(json.dumps(result.as_dict()))
    assert written["caveat"] == CAVEAT
    read = Localisation.from_dict(written)
    assert read is not None
    assert read.as_dict() == result.as_dict()
    assert next(name for name, _ in read.named()) == "top patch on an object"
    assert tuple(read.measures) == MEASURES
    for damaged in (None, {}, {**written, "froc": 3}, {**written, "images": "x"}, [1]):
        assert Localisation.from_dict(damaged) is None
