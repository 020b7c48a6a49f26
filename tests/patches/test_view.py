"""Changed views of an image."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from ips.patches import MemoryPatches, PatchSource, open_patches, sampled
from ips.patches.view import View, ViewedPatches
from tests.patches.conformance import PatchSourceConformance

PIXELS = np.random.default_rng(0).integers(0, 256, (50, 70, 3), dtype=np.uint8)
VIEW = View(
    mirrored=True,
    turns=1,
    size=1.2,
    tilt=-7.0,
    shift=(0.3, -0.2),
    brightness=1.1,
    contrast=0.9,
    colours=((0.9, 0.1, 0.0), (0.0, 1.0, 0.0), (0.1, 0.0, 0.9)),
    stains=((1.1, 0.0, 0.0), (0.0, 0.9, 0.0), (0.0, 0.05, 1.0)),
    blur=0.8,
)


def grid(**options: object) -> PatchSource:
    return open_patches(PIXELS, patch_size=16, **options)  # type: ignore[arg-type]


class TestViewedPatches(PatchSourceConformance):
    @pytest.fixture
    def source(self) -> PatchSource:
        return ViewedPatches(grid(), VIEW)

    @pytest.fixture
    def expected(self) -> Tensor:
        moved = grid().shifted(VIEW.shift)
        return torch.cat([VIEW.apply(moved.read([i])) for i in range(len(moved))])


def test_no_change_is_no_change() -> None:
    patches = grid().read(range(len(grid())))
    assert torch.equal(View().apply(patches), patches)
    assert torch.equal(ViewedPatches(grid(), View()).read([3]), patches[[3]])


def test_mirrored_and_turned_patches() -> None:
    patches = grid().read([0, 1])
    assert torch.equal(View(mirrored=True).apply(patches), patches.flip(3))
    assert torch.equal(View(upside_down=True).apply(patches), patches.flip(2))
    assert torch.equal(View(turns=3).apply(patches), patches.rot90(3, (2, 3)))


def test_what_patches_show_is_resized_and_rotated_about_their_centres() -> None:
    patches = torch.zeros(1, 1, 16, 16, dtype=torch.uint8)
    patches[..., 6:10, 6:10] = 200  # a square of 4 px
    larger = View(size=2.0).apply(patches)
    assert (larger[..., 5:11, 5:11] == 200).all()
    assert int((larger >= 100).sum()) == 64
    smaller = View(size=0.8).apply(patches)
    assert abs(float(smaller.sum()) / float(patches.sum()) - 0.64) < 0.05
    patches[..., 6:10, 10:] = 100  # a bar to the right points up after a quarter turn
    turned = View(tilt=90.0).apply(patches)
    assert (turned.int() - patches.rot90(1, (2, 3)).int()).abs().max() <= 1
    flat = torch.full((2, 3, 8, 8), 93, dtype=torch.uint8)
    assert torch.equal(View(size=0.7, tilt=20.0).apply(flat), flat)


def test_brightness_scales_and_contrast_keeps_grey() -> None:
    patches = torch.tensor([0, 100, 200], dtype=torch.uint8).view(1, 1, 1, 3)
    assert View(brightness=1.5).apply(patches).flatten().tolist() == [0, 150, 255]
    assert View(contrast=0.5).apply(patches).flatten().tolist() == [64, 114, 164]


def test_a_blur_keeps_the_mean_and_a_single_colour() -> None:
    dot = torch.zeros(1, 3, 15, 15, dtype=torch.uint8)
    dot[:, :, 7, 7] = 255
    blurred = View(blur=1.0).apply(dot).float()
    assert blurred[0, 0, 7, 7] < 50
    assert torch.equal(blurred, blurred.transpose(2, 3))
    assert abs(float(blurred.sum()) - 3 * 255) < 0.05 * 3 * 255
    flat = torch.full((2, 1, 4, 4), 93, dtype=torch.uint8)
    assert torch.equal(View(blur=3.0).apply(flat), flat)  # also where a patch is small


def test_stains_leave_glass_alone_and_grey_images_have_none() -> None:
    glass = torch.full((1, 3, 2, 2), 255, dtype=torch.uint8)
    more = View(stains=((1.3, 0.0, 0.0), (0.0, 1.3, 0.0), (0.0, 0.0, 1.3)))
    assert torch.equal(more.apply(glass), glass)
    tissue = torch.full((1, 3, 2, 2), 120, dtype=torch.uint8)
    assert (more.apply(tissue) < tissue).all()
    grey = torch.full((1, 1, 2, 2), 120, dtype=torch.uint8)
    assert torch.equal(more.apply(grey), grey)


def test_many_patches_are_changed_like_single_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    patches = grid().read(range(len(grid())))
    whole = VIEW.apply(patches)
    monkeypatch.setattr("ips.patches.view._BLOCK", 1000)  # one patch at a time
    assert torch.equal(VIEW.apply(patches), whole)


def test_a_shift_moves_all_patches_but_none_over_the_edge() -> None:
    source = grid()  # 4 x 3 patches on 70 x 50 px: 6 and 2 px are left
    moved = source.shifted((0.25, 0.25))
    assert len(moved) == len(source)
    assert (moved.coords - source.coords)[0].tolist() == [4, 4]
    assert moved.coords.max(axis=0).tolist() == [52, 34]
    back = source.shifted((-0.25, 0))
    assert back.coords.min(axis=0).tolist() == [0, 0]
    assert sorted(set(back.coords[:, 0].tolist())) == [0, 12, 28, 44]
    x, y = moved.coords[5].tolist()
    expected = torch.from_numpy(PIXELS[y : y + 16, x : x + 16].transpose(2, 0, 1).copy())
    assert torch.equal(moved.read([5])[0], expected)
    assert source.coords[0].tolist() == [0, 0]


def test_padded_patches_stay_where_they_cross_the_edge() -> None:
    source = grid(edge="pad")
    moved = source.shifted((0.5, 0.5))
    assert moved.coords.max(axis=0).tolist() == source.coords.max(axis=0).tolist()


def test_a_sample_is_moved_and_patches_in_memory_are_not() -> None:
    sample = sampled(grid(), 4, seed=0)
    moved = sample.shifted((0.25, 0.0))
    assert len(moved) == 4
    assert (moved.coords[:, 0] > sample.coords[:, 0]).all()
    memory = MemoryPatches(torch.zeros(3, 1, 4, 4, dtype=torch.uint8))
    assert memory.shifted((0.25, 0.25)) is memory
