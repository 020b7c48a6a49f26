"""Masks against the pixels that they are made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image as PILImage

from ips.annotations import Outline
from ips.errors import PatchError
from ips.patches import mask as module
from ips.patches.image import ImagePatches
from ips.patches.mask import Mask, divided, mask_of_outlines, mask_of_picture, mask_of_squares
from tests.patches.test_tissue import Pyramid

WIDTH, HEIGHT = 100, 70


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 1000)


def image() -> Pyramid:
    return Pyramid([np.zeros((HEIGHT, WIDTH, 3), np.uint8)])


def whole(mask: Mask) -> npt.NDArray[np.bool_]:
    width, height = mask.size
    pixels = np.zeros((height, width), bool)
    for (x, y, w, h), part in mask.parts():
        pixels[y : y + h, x : x + w] = part
    return pixels


def test_blocks_cover_a_mask_once() -> None:
    count = np.zeros((HEIGHT, WIDTH), int)
    for x, y, w, h in divided((WIDTH, HEIGHT)):
        assert w * h <= 1000
        count[y : y + h, x : x + w] += 1
    assert (count == 1).all()


@pytest.mark.parametrize(
    ("size", "stride", "edge"), [(16, 16, "drop"), (20, 7, "fit"), (9, 13, "pad")]
)
@pytest.mark.parametrize("shift", [(0.0, 0.0), (0.3, -0.45)])
def test_shares_are_those_of_the_pixels(
    size: int, stride: int, edge: Any, shift: tuple[float, float]
) -> None:
    pixels = np.random.default_rng(0).random((HEIGHT, WIDTH)) < 0.1
    parts = [
        ((x, y, w, h), pixels[y : y + h, x : x + w]) for x, y, w, h in divided((WIDTH, HEIGHT))
    ]
    mask = Mask.of(1.0, (WIDTH, HEIGHT), parts)
    patches = ImagePatches(image(), patch_size=size, stride=stride, edge=edge).shifted(shift)
    padded = np.pad(pixels, ((0, size), (0, size)))
    expected = [padded[y : y + size, x : x + size].mean() for x, y in patches.coords.tolist()]
    assert mask.shares(patches).tolist() == pytest.approx(expected)
    assert (whole(mask) == pixels).all()


def test_stored_squares_are_found_again_on_their_own_grid() -> None:
    patches = ImagePatches(image(), patch_size=7, edge="pad")
    chosen = np.flatnonzero(np.random.default_rng(1).random(len(patches)) < 0.3)
    mask = mask_of_squares(patches.image, patches.coords[chosen], 7)
    assert np.flatnonzero(mask.shares(patches) > 0.5).tolist() == chosen.tolist()
    less = mask.without(patches.coords[chosen[:5]], 7)
    assert np.flatnonzero(less.shares(patches) > 0.5).tolist() == chosen[5:].tolist()


def test_outlines_have_holes_and_may_leave_the_image() -> None:
    square = [(10.0, 10.0), (50.0, 10.0), (50.0, 50.0), (10.0, 50.0)]
    hole = [(20.0, 20.0), (40.0, 20.0), (40.0, 40.0), (20.0, 40.0)]
    beyond = [(80.0, 60.0), (500.0, 60.0), (500.0, 500.0), (80.0, 500.0)]
    outlines = [
        Outline("polygon", [square, hole], "", "", None),
        Outline("polygon", [beyond], "", "", None),
        Outline("point", [[(70.0, 10.0)]], "", "", None),
    ]
    mask = mask_of_outlines(image(), outlines, 16)
    assert mask.step == 1
    expected = np.zeros((HEIGHT, WIDTH), bool)
    expected[10:50, 10:50] = True
    expected[20:40, 20:40] = False
    expected[60:, 80:] = True
    found = whole(mask)[:HEIGHT, :WIDTH]
    edge = 2 * (40 + 40 + 20 + 20 + 20)  # a pixel on a line may count for either side
    assert (found != expected).sum() <= edge
    for y, x, inside in ((15, 15, True), (30, 30, False), (65, 90, True), (10, 70, False)):
        assert found[y, x] == inside


def test_a_picture_is_stretched_over_the_image(tmp_path: Path) -> None:
    picture = np.zeros((35, 50), np.uint8)
    picture[5:15, 10:20] = 1
    PILImage.fromarray(picture).save(tmp_path / "mask.png")
    mask = mask_of_picture(image(), tmp_path / "mask.png")
    patches = ImagePatches(image(), patch_size=10)
    kept = patches.coords[mask.shares(patches) >= 0.01]
    assert sorted(map(tuple, kept.tolist())) == [(x, y) for x in (20, 30) for y in (10, 20)]
    PILImage.fromarray(picture.T).save(tmp_path / "turned.png")
    with pytest.raises(PatchError, match="does not have the shape of pyramid"):
        mask_of_picture(image(), tmp_path / "turned.png")
