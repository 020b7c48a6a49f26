"""Ink, blurred regions and dark backgrounds of drawn slides."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image as PILImage
from PIL import ImageDraw
from scipy.ndimage import gaussian_filter

from ips.data.synthetic.tissue_drawing import TissueSlide
from ips.errors import PatchError
from ips.patches.artefacts import is_ink
from ips.patches.image import ImagePatches
from ips.patches.tissue import Tissue, TissueSettings, tissue_patches
from tests.patches.test_tissue import Pixels, Pyramid, reduced

SIDE, PATCH = 1024, 64


@pytest.fixture(scope="module")
def drawn() -> Pixels:
    slide, tiles = TissueSlide(SIDE, seed=0, number=1, abnormal=True), range(SIDE // 256)
    rows = [np.concatenate([slide.tile(column, row) for column in tiles], axis=1) for row in tiles]
    return np.concatenate(rows)


def search(pixels: Pixels, **settings: Any) -> Tissue:
    image = Pyramid([pixels, reduced(pixels, 4)])
    return tissue_patches(ImagePatches(image, patch_size=PATCH), TissueSettings(**settings))


@pytest.mark.parametrize(
    "ink", [(20, 140, 60), (30, 60, 190), (0, 90, 160), (15, 15, 20), (200, 20, 30)]
)
def test_marks_of_felt_pens_are_left_out_on_request(
    drawn: Pixels, ink: tuple[int, int, int]
) -> None:
    picture = PILImage.fromarray(drawn)
    ImageDraw.Draw(picture).line([(40, 40), (980, 60), (970, 990)], fill=ink, width=24)
    marked, plain = np.array(picture), search(drawn)
    assert len(search(marked).kept) > len(plain.kept) + 20
    assert search(marked, skip_pen=True).kept.tolist() == plain.kept.tolist()


def test_stained_tissue_is_no_ink(drawn: Pixels) -> None:
    assert is_ink(drawn).mean() < 0.001
    assert search(drawn, skip_pen=True).kept.tolist() == search(drawn).kept.tolist()


def test_blurred_patches_are_left_out_on_request(drawn: Pixels) -> None:
    blurred = drawn.copy()
    left = slice(0, SIDE // 2)
    for channel in range(3):
        blurred[:, left, channel] = gaussian_filter(drawn[..., channel], 2.5)[:, left]
    everything, sharp = search(blurred).source.coords[:, 0], search(blurred, skip_blurred=True)
    kept = sharp.source.coords[:, 0]
    on_left = everything < SIDE // 2 - PATCH
    assert (kept < SIDE // 2 - PATCH).sum() < 0.2 * on_left.sum()
    assert (kept >= SIDE // 2).sum() == (everything >= SIDE // 2).sum()
    assert sharp.mask is not None
    assert np.flatnonzero(sharp.mask.shares(sharp.patches) >= 0.01).tolist() == sharp.kept.tolist()
    assert search(drawn, skip_blurred=True).kept.tolist() == search(drawn).kept.tolist()


def test_small_patches_have_no_focus() -> None:
    pixels = np.full((64, 64, 3), 240, np.uint8)
    pixels[:32] = 90
    patches = ImagePatches(Pyramid([pixels]), patch_size=16)
    with pytest.raises(PatchError, match="too small to see whether they are in focus"):
        tissue_patches(patches, TissueSettings(skip_blurred=True))


def nuclei(background: float, bright: float, channel: int) -> tuple[Pixels, npt.NDArray[np.bool_]]:
    """Bright nuclei inside a disc, in one channel; and the disc."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:SIDE, :SIDE]
    disc = np.hypot(x - 400, y - 500) < 300
    spots = gaussian_filter((rng.random((SIDE, SIDE)) < 0.002).astype(float), 3)
    light = disc * bright * np.minimum(1, 2 * spots / spots.max())
    pixels = np.zeros((SIDE, SIDE, 3))
    pixels[..., channel] = background + light + rng.normal(0, bool(background), (SIDE, SIDE))
    return np.clip(pixels, 0, 255).astype(np.uint8), disc


@pytest.mark.parametrize(
    ("background", "bright", "channel"),
    [(2, 200, 2), (0, 100, 2), (30, 120, 2), (2, 40, 0), (12, 14, 0), (50, 60, 0), (45, 30, 1)],
)
def test_nuclei_on_dark_backgrounds_are_tissue(
    background: float, bright: float, channel: int
) -> None:
    """As under DAPI (blue) and TRITC (red), strong and faint."""
    pixels, disc = nuclei(background, bright, channel)
    found = search(pixels)
    corners = found.patches.coords.tolist()
    share = np.array([disc[y : y + PATCH, x : x + PATCH].mean() for x, y in corners])
    kept = np.isin(np.arange(len(corners)), found.kept)
    assert found.fluorescent
    assert kept[share > 0.3].mean() > 0.9
    assert not kept[share == 0].any()


def test_the_background_can_be_given(drawn: Pixels) -> None:
    dark = search(drawn, background="dark")
    assert dark.fluorescent
    on_glass = set(dark.kept.tolist()) - set(search(drawn).kept.tolist())
    assert len(on_glass) > 100
    pixels, _ = nuclei(2, 200, 2)
    assert not search(pixels, background="bright").fluorescent
