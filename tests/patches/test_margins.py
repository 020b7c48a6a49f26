from __future__ import annotations

import numpy as np
import pytest

from ips.images import ArrayImage
from ips.patches import ImagePatches, PatchSource
from ips.patches.margins import margins


def source(*, size: int = 8, stride: int = 4, side: int = 20, edge: str = "drop") -> PatchSource:
    pixels = np.zeros((side, side, 3), np.uint8)
    return ImagePatches(ArrayImage(pixels), patch_size=size, stride=stride, edge=edge)  # type: ignore[arg-type]


def test_patches_side_by_side_have_no_margin() -> None:
    assert not margins(source(stride=8, side=32)).any()


def test_only_patches_with_all_neighbours_have_one() -> None:
    found = margins(source()).reshape(4, 4)  # corners at 0, 4, 8, 12
    assert found[1:3, 1:3].eq(2).all()
    assert found.sum() == 4 * 2


def test_patches_that_are_left_out_are_no_neighbours() -> None:
    some = source(side=24).sampled(24, seed=0)  # of 25
    assert len(some) == 24
    assert margins(some).count_nonzero() < margins(source(side=24)).count_nonzero()


def test_the_last_patches_of_a_fitted_grid_have_none() -> None:
    found = margins(source(side=22, edge="fit")).reshape(5, 5)  # corners at 0, 4, 8, 12, 14
    assert found[1:3, 1:3].eq(2).all()
    assert found.sum() == 4 * 2


def test_scattered_patches_have_none() -> None:
    bag = source(side=40)
    bag.coords = np.array([[0, 3], [5, 0]] + [[6, 7]] * (len(bag) - 2))
    assert not margins(bag).any()


@pytest.mark.parametrize(("size", "stride"), [(8, 4), (9, 4), (8, 5), (10, 3)])
def test_cells_cover_every_pixel(size: int, stride: int) -> None:
    bag = source(size=size, stride=stride, side=size + 5 * stride)
    covered = np.zeros((size + 5 * stride,) * 2, int)
    for (x, y), m in zip(bag.coords, margins(bag).tolist(), strict=True):
        covered[y + m : y + size - m, x + m : x + size - m] += 1
    assert covered.min() >= 1
