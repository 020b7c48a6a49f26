"""The tissue filter against a naive count of dark pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image as PILImage
from skimage.filters import threshold_otsu

from ips.errors import ImageError, PatchError
from ips.images import Image, downsample_for
from ips.patches import mask as module
from ips.patches.image import ImagePatches
from ips.patches.tissue import (
    TissueSettings,
    tissue_level,
    tissue_patches,
)

Pixels = npt.NDArray[np.uint8]


class Pyramid(Image):
    """Levels in memory that record every read as level, x, y, width, height."""

    def __init__(self, levels: list[Pixels], *, tile: int | None = 32, **header: Any) -> None:
        sizes = tuple((level.shape[1], level.shape[0]) for level in levels)
        tiles = tuple((tile, tile) if tile else None for _ in levels)
        channels = levels[0].shape[2]
        super().__init__("pyramid.tif", levels=sizes, channels=channels, tiles=tiles, **header)
        self.levels = levels
        self.reads: list[tuple[int, int, int, int, int]] = []

    def _open(self) -> list[Pixels]:
        return self.levels

    def _read(self, level: int, x: int, y: int, width: int, height: int) -> Pixels:
        self.reads.append((level, x, y, width, height))
        return self.levels[level][y : y + height, x : x + width]


def slide(width: int = 400, height: int = 330, *, seed: int = 0) -> Pixels:
    """Two pink discs with purple dots on glass."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    pixels = rng.normal(242, 2, (height, width, 3))
    for cx, cy, radius in ((0.35, 0.4, 0.25), (0.8, 0.75, 0.12)):
        inside = np.hypot(x - cx * width, y - cy * height) < radius * height
        colour = np.where(rng.random((height, width, 1)) < 0.2, (90, 60, 140), (225, 160, 200))
        pixels = np.where(inside[..., None], colour + rng.normal(0, 6, pixels.shape), pixels)
    return np.clip(pixels, 1, 255).astype(np.uint8)


def reduced(pixels: Pixels, by: int) -> Pixels:
    return np.asarray(PILImage.fromarray(pixels).reduce(by))


def grey(pixels: Pixels) -> Pixels:
    return np.asarray(PILImage.fromarray(pixels).convert("L"))


def share_by_hand(pixels: Pixels, patches: ImagePatches) -> npt.NDArray[np.float64]:
    """Share of tissue in each patch at full resolution."""
    dark = grey(pixels) <= threshold_otsu(grey(pixels))
    side = patches.extent
    return np.array(
        [dark[y : y + side, x : x + side].sum() / side**2 for x, y in patches.coords.tolist()]
    )


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 64 * 64)


@pytest.mark.parametrize("tile", [None, 32, 48])
def test_threshold_is_that_of_the_whole_image(tile: int | None) -> None:
    pixels = slide()
    image = Pyramid([pixels, reduced(pixels, 2)], tile=tile)
    for level, whole in enumerate(image.levels):
        found = tissue_patches(ImagePatches(image, patch_size=32), TissueSettings(level))
        assert found.threshold == threshold_otsu(grey(whole))


def test_grey_images_have_a_threshold() -> None:
    pixels = grey(slide())[..., None]
    found = tissue_patches(ImagePatches(Pyramid([pixels]), patch_size=32), TissueSettings(0))
    assert found.threshold == threshold_otsu(pixels)


@pytest.mark.parametrize("edge", ["drop", "pad", "fit"])
@pytest.mark.parametrize(("size", "stride"), [(32, 32), (50, 20), (20, 33), (300, 300)])
def test_kept_patches_match_a_naive_count(size: int, stride: int, edge: Any) -> None:
    pixels = slide()
    patches = ImagePatches(Pyramid([pixels]), patch_size=size, stride=stride, edge=edge)
    expected = np.flatnonzero(share_by_hand(pixels, patches) >= 0.01)
    found = tissue_patches(patches, TissueSettings(0))
    assert found.kept.dtype == np.int64
    assert found.kept.tolist() == expected.tolist()
    assert found.reason is None
    assert found.source.coords.tolist() == patches.coords[expected].tolist()


def test_min_share_decides_which_patches_are_kept() -> None:
    pixels = slide()
    patches = ImagePatches(Pyramid([pixels]), patch_size=32)
    share = share_by_hand(pixels, patches)
    for least in (0.2, 0.9):
        kept = tissue_patches(patches, TissueSettings(0, min_share=least)).kept
        assert kept.tolist() == np.flatnonzero(share >= least).tolist()


@pytest.mark.parametrize("mpp", [0.25, 0.5, 0.61])
def test_coarse_levels_agree_on_clear_patches(mpp: float) -> None:
    pixels = slide()
    image = Pyramid([pixels, reduced(pixels, 2), reduced(pixels, 4)], mpp=(0.25, 0.25))
    patches = ImagePatches(image, patch_size=40, downsample=downsample_for(image, mpp=mpp))
    share = share_by_hand(pixels, patches)
    for level in range(3):
        kept = np.isin(np.arange(len(patches)), tissue_patches(patches, TissueSettings(level)).kept)
        assert kept[share > 0.05].all()
        assert not kept[share < 0.001].any()
        assert 0 < kept.sum() < len(kept)


def test_levels_of_fractional_scale_are_covered_to_the_edge() -> None:
    pixels = np.full((340, 400, 3), 240, np.uint8)  # a patch of 30 sticks out by 20 each way
    pixels[-10:, -10:] = 80
    image = Pyramid([pixels, reduced(pixels, 3)])
    patches = ImagePatches(image, patch_size=30, edge="pad")
    assert image.level_dimensions[1] == (134, 114)
    kept = set(tissue_patches(patches, TissueSettings(1)).kept.tolist())
    # A level's factor comes from its rounded size, so a pixel of it may count for a neighbour.
    assert {167} <= kept <= {152, 153, 166, 167}


def test_each_pass_reads_every_tile_once_in_bounded_blocks() -> None:
    image = Pyramid([slide(), reduced(slide(), 2)])
    tissue_patches(ImagePatches(image, patch_size=32), TissueSettings(0))
    assert {read[0] for read in image.reads} == {0}
    assert all(w * h <= 64 * 64 and x % 32 == y % 32 == 0 for _, x, y, w, h in image.reads)
    assert sum(w * h for *_, w, h in image.reads) == 2 * 400 * 330
    assert len(set(image.reads)) * 2 == len(image.reads)


def test_only_the_scanned_region_is_read() -> None:
    pixels = slide()
    pixels[:, :100] = 30  # a label of the slide, say
    image = Pyramid([pixels], bounds=(100, 10, 290, 300))
    patches = ImagePatches(image, patch_size=30)
    found = tissue_patches(patches, TissueSettings(0))
    assert found.threshold == threshold_otsu(grey(pixels[10:310, 100:390]))
    assert sum(w * h for *_, w, h in image.reads) == 2 * 290 * 300


def test_black_unscanned_areas_are_not_tissue() -> None:
    pixels = slide()
    plain = tissue_patches(ImagePatches(Pyramid([pixels]), patch_size=32), TissueSettings(0))
    holed = pixels.copy()
    holed[:32, :96] = 0  # glass before
    found = tissue_patches(ImagePatches(Pyramid([holed]), patch_size=32), TissueSettings(0))
    assert found.kept.tolist() == plain.kept.tolist()


def test_most_of_a_slide_may_be_black() -> None:
    pixels = np.zeros((330, 1600, 3), np.uint8)
    pixels[:, :400] = slide()
    found = tissue_patches(ImagePatches(Pyramid([pixels]), patch_size=32), TissueSettings(0))
    assert found.threshold == threshold_otsu(grey(slide()))
    assert not found.fluorescent
    assert found.source.coords[:, 0].max() < 400


def test_noisy_black_areas_are_not_fluorescence() -> None:
    """JPEG adds such noise."""
    pixels = np.random.default_rng(0).integers(0, 6, (330, 1200, 3), dtype=np.uint8)
    pixels[:, :400] = slide()
    found = tissue_patches(ImagePatches(Pyramid([pixels]), patch_size=40), TissueSettings(0))
    plain = tissue_patches(ImagePatches(Pyramid([slide()]), patch_size=40), TissueSettings(0))
    assert not found.fluorescent
    assert found.threshold == plain.threshold
    assert found.source.coords.tolist() == plain.source.coords.tolist()


def test_under_fluorescence_tissue_is_bright() -> None:
    rng = np.random.default_rng(0)
    pixels = np.zeros((200, 200, 3), np.uint8)
    pixels[..., 2] = rng.integers(0, 16, (200, 200))  # blue: grey up to 2
    pixels[40:60, 70:130, 2] = rng.integers(180, 256, (20, 60))
    found = tissue_patches(ImagePatches(Pyramid([pixels]), patch_size=20), TissueSettings(0))
    assert found.fluorescent
    assert found.threshold == threshold_otsu(pixels.max(axis=-1))
    assert found.source.coords.tolist() == [[x, 40] for x in (60, 80, 100, 120)]


def noise(mean: float, spread: float) -> Pixels:
    values = np.random.default_rng(0).normal(mean, spread, (200, 200, 3))
    return np.clip(values, 1, 255).astype(np.uint8)


@pytest.mark.parametrize(
    ("pixels", "reason"),
    [
        (np.full((200, 200, 3), 255, np.uint8), "same grey value, 255"),
        (np.full((200, 200, 3), 70, np.uint8), "same grey value, 70"),
        (np.zeros((200, 200, 3), np.uint8), "all of it is black"),
        (noise(244, 2), "nothing stands out"),
        (noise(200, 12), "nothing stands out"),
        (noise(9, 3), "nothing stands out"),
    ],
)
def test_a_slide_without_tissue_gives_the_reason(pixels: Pixels, reason: str) -> None:
    found = tissue_patches(ImagePatches(Pyramid([pixels]), patch_size=32))
    assert len(found.kept) == 0
    assert found.threshold is None
    assert found.reason is not None
    assert reason in found.reason


def test_specks_are_too_small_to_keep_a_patch() -> None:
    pixels = np.full((200, 200, 3), 240, np.uint8)
    pixels[10:13, 10:13] = 60
    found = tissue_patches(ImagePatches(Pyramid([pixels]), patch_size=50), TissueSettings(0))
    assert len(found.kept) == 0
    assert found.threshold is not None
    assert "no patch has 1% of its area" in str(found.reason)


def test_default_level_is_coarse_but_leaves_pixels_in_a_patch() -> None:
    pixels = np.zeros((512, 512, 3), np.uint8)
    image = Pyramid([reduced(pixels, by) for by in (1, 4, 16, 64)])

    def level(size: int, downsample: float = 1.0) -> int:
        return tissue_level(ImagePatches(image, patch_size=size, downsample=downsample))

    assert [level(size) for size in (8, 63, 64, 255, 256, 512)] == [0, 0, 1, 1, 2, 2]
    assert level(64, 4.0) == 2


def test_impossible_levels_are_errors() -> None:
    pixels = slide()
    patches = ImagePatches(Pyramid([pixels, reduced(pixels, 4)]), patch_size=3)
    with pytest.raises(PatchError, match="finer level"):
        tissue_patches(patches, TissueSettings(1))
    with pytest.raises(ImageError, match="no level 2"):
        tissue_patches(patches, TissueSettings(2))


def test_progress_counts_both_passes() -> None:
    told: list[tuple[int, int]] = []
    image = Pyramid([slide()])
    tissue_patches(
        ImagePatches(image, patch_size=32), progress=lambda done, of: told.append((done, of))
    )
    assert [done for done, _ in told] == list(range(1, len(image.reads) + 1))
    assert {of for _, of in told} == {len(image.reads)}
