"""Attention maps of a trained model peak on the digits of generated images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

import ips
from ips.data.synthetic.digits import DIGIT_SIDE
from ips.data.synthetic.megapixel_mnist import MegapixelMNIST
from ips.explain import AttentionMap, Explanation

RUN = Path(__file__).parent.parent / "fixtures" / "digits"
IMAGES = 60

# An explanation, the labels, and the corners of the digits.
Look = tuple[Explanation, dict[str, torch.Tensor], npt.NDArray[np.int64]]


def on_a_digit(found: AttentionMap, places: npt.NDArray[np.int64]) -> bool:
    """Whether the cell with the highest attention shares a pixel with a digit."""
    row, column = np.unravel_index(np.nanargmax(found.values), found.values.shape)
    corner = np.array(found.offset) + np.array([column, row]) * found.cell
    touch = (places < corner + found.cell) & (places + DIGIT_SIDE > corner)
    return bool(touch.all(axis=1).any())


def is_right(probabilities: torch.Tensor, truth: torch.Tensor) -> bool:
    """The likeliest class is the true one; of many labels, every one is."""
    if truth.ndim:
        return bool(((probabilities >= 0.5) == truth.bool()).all())
    return int(probabilities.argmax()) == int(truth)


@pytest.fixture(scope="module")
def looks() -> list[Look]:
    predictor = ips.load(RUN)
    data = MegapixelMNIST(1000, count=IMAGES, split="test", seed=0)
    return [
        (predictor.predict(data[n][0]), data[n][1], data.layout(n).digit_places)
        for n in range(IMAGES)
    ]


@pytest.mark.parametrize(
    ("task", "share"),
    [("majority", 0.75), ("max", 0.75), ("multi", 0.4)],  # all ten labels at once are hard to get
)
def test_the_peak_is_on_a_digit_if_the_prediction_is_correct(
    task: str, share: float, looks: list[Look]
) -> None:
    right = [look for look in looks if is_right(look[0].probabilities[task], look[1][task])]
    assert len(right) >= share * IMAGES
    own = [on_a_digit(answer.map(task), places) for answer, _, places in right]
    mean = [on_a_digit(answer.map(), places) for answer, _, places in right]
    assert np.mean(own) >= 0.9
    assert np.mean(mean) >= 0.9


def test_the_peak_is_rarely_on_digits_of_another_image(looks: list[Look]) -> None:
    """The truth of another image: what the share is for a map that has nothing to do with it."""
    others = [
        on_a_digit(answer.map(), places)
        for (answer, _, _), (_, _, places) in zip(looks, looks[1:] + looks[:1], strict=True)
    ]
    assert np.mean(others) <= 0.2
