"""Random colour changes and shifts of the traffic sign images."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from ips.data.traffic_signs import JITTER, MAX_SHIFT, Augmentation, draw_augmentation

SAME = Augmentation(1, 1, 1, 0, order=(0, 1, 2, 3), shift=(0, 0))


def gradient() -> Image.Image:
    y, x = np.mgrid[:40, :60]
    return Image.fromarray(np.stack([4 * x, 6 * y, 2 * (x + y)], axis=-1).astype(np.uint8))


def test_neutral_values_change_nothing_but_rounding() -> None:
    without_hue = replace(SAME, order=(0, 1, 2)).apply(gradient())
    assert np.array_equal(np.asarray(without_hue), np.asarray(gradient()))
    difference = np.asarray(SAME.apply(gradient())).astype(int) - np.asarray(gradient())
    assert np.abs(difference).max() <= 8  # the hue is turned in 8 bits


def test_a_shift_moves_right_and_down_and_fills_with_black() -> None:
    before = np.asarray(gradient()) | 1  # nothing is black
    moves = replace(SAME, order=(), shift=(7, -3))
    after = np.asarray(moves.apply(Image.fromarray(before)))
    assert np.array_equal(after[:-3, 7:], before[3:, :-7])
    assert not after[-3:].any()
    assert not after[:, :7].any()


def test_colour_changes_match_their_definition() -> None:
    before = np.asarray(gradient()).astype(float)
    grey = np.asarray(gradient().convert("L")).astype(float)[..., None]

    def after(**change: float) -> npt.NDArray[np.float64]:
        step = ["brightness", "contrast", "saturation", "hue"].index(next(iter(change)))
        jitter = replace(SAME, order=(step,), **change)  # type: ignore[arg-type]
        return np.asarray(jitter.apply(gradient())).astype(float)

    near: dict[str, Any] = {"atol": 1.01, "rtol": 0}
    np.testing.assert_allclose(after(brightness=0.5), before * 0.5, **near)
    np.testing.assert_allclose(after(contrast=0.5), (before + grey.mean()) / 2, **near)
    np.testing.assert_allclose(after(saturation=0.5), (before + grey) / 2, **near)
    red = Image.new("RGB", (2, 2), (255, 0, 0))
    turned = np.asarray(replace(SAME, order=(3,), hue=1 / 3).apply(red))[0, 0]
    np.testing.assert_allclose(turned, [0, 255, 0], atol=6)
    back = np.asarray(replace(SAME, order=(3,), hue=-1 / 3).apply(red))[0, 0]
    np.testing.assert_allclose(back, [0, 0, 255], atol=6)


def test_the_order_of_colour_changes_matters() -> None:
    jitter = replace(SAME, brightness=0.5, contrast=2.0, order=(0, 1))
    assert jitter.apply(gradient()) != replace(jitter, order=(1, 0)).apply(gradient())


def test_random_values_cover_their_ranges() -> None:
    rng = np.random.default_rng(0)
    draws = [draw_augmentation(rng) for _ in range(2000)]
    for name in ("brightness", "contrast", "saturation"):
        values = [getattr(draw, name) for draw in draws]
        assert 1 - JITTER <= min(values) < 0.901
        assert 1.099 < max(values) <= 1 + JITTER
    hues = [draw.hue for draw in draws]
    assert -JITTER <= min(hues) < -0.099
    assert 0.099 < max(hues) <= JITTER
    shifts = np.array([draw.shift for draw in draws])
    assert shifts.min(axis=0).tolist() == [-MAX_SHIFT, -MAX_SHIFT]
    assert shifts.max(axis=0).tolist() == [MAX_SHIFT, MAX_SHIFT]
    assert len({draw.order for draw in draws}) == 24
