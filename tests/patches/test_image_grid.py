"""The grid against naive enumeration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ips.errors import PatchError
from ips.patches import Edge, Grid

sides = st.integers(1, 40)
steps = st.integers(1, 12)


def corners_dropped(width: int, height: int, patch: int, stride: int) -> list[list[int]]:
    """Every corner on the lattice whose patch lies wholly inside."""
    return [
        [x, y]
        for y in range(0, height, stride)
        for x in range(0, width, stride)
        if x + patch <= width and y + patch <= height
    ]


def starts_padded(side: int, patch: int, stride: int) -> list[int]:
    """The next one inside the image, as long as the last leaves something uncovered."""
    starts = [0]
    while starts[-1] + patch < side and starts[-1] + stride < side:
        starts.append(starts[-1] + stride)
    return starts


@pytest.mark.parametrize(("stride", "count"), [(50, 900), (25, 3481)])
def test_numbers_of_patches_in_the_paper(stride: int, count: int) -> None:
    assert len(Grid(1500, 1500, patch=50, stride=stride)) == count


@given(width=sides, height=sides, patch=steps, stride=steps)
def test_dropping_the_edge_is_naive_enumeration(
    width: int, height: int, patch: int, stride: int
) -> None:
    assume(patch <= min(width, height))
    grid = Grid(width, height, patch=patch, stride=stride)
    assert grid.coords.tolist() == corners_dropped(width, height, patch, stride)
    assert len(grid) == len(grid.coords) == grid.shape[0] * grid.shape[1]


@given(width=sides, height=sides, patch=steps, stride=steps)
def test_padding_the_edge_is_naive_enumeration(
    width: int, height: int, patch: int, stride: int
) -> None:
    grid = Grid(width, height, patch=patch, stride=stride, edge="pad")
    rows, columns = starts_padded(height, patch, stride), starts_padded(width, patch, stride)
    assert grid.coords.tolist() == [[x, y] for y in rows for x in columns]
    assert grid.shape == (len(rows), len(columns))


@given(width=sides, height=sides, patch=steps, stride=steps)
def test_fitting_moves_the_last_patches_into_the_image(
    width: int, height: int, patch: int, stride: int
) -> None:
    padded = Grid(width, height, patch=patch, stride=stride, edge="pad").coords
    last = max(width - patch, 0), max(height - patch, 0)
    fitted = Grid(width, height, patch=patch, stride=stride, edge="fit").coords
    assert fitted.tolist() == [[min(x, last[0]), min(y, last[1])] for x, y in padded.tolist()]


@pytest.mark.parametrize("edge", ["pad", "fit"])
@given(width=sides, height=sides, patch=steps, stride=steps)
def test_no_pixel_is_left_out(edge: Edge, width: int, height: int, patch: int, stride: int) -> None:
    assume(stride <= patch)
    seen = np.zeros((height, width), dtype=bool)
    for x, y in Grid(width, height, patch=patch, stride=stride, edge=edge).coords:
        seen[y : y + patch, x : x + patch] = True
    assert seen.all()


@pytest.mark.parametrize(("width", "height"), [(40, 100), (100, 40)])
def test_a_patch_larger_than_the_image_is_an_error_unless_padded(width: int, height: int) -> None:
    with pytest.raises(PatchError, match=f"50 px .* {width} x {height} px"):
        Grid(width, height, patch=50, stride=50)
    assert len(Grid(width, height, patch=50, stride=50, edge="pad")) == 2


@pytest.mark.parametrize(("patch", "stride"), [(0, 1), (1, 0), (5, -1), (10**30, 1), (1, 10**30)])
def test_sizes_of_no_patch_are_an_error(patch: int, stride: int) -> None:
    with pytest.raises(PatchError, match="between 1 and"):
        Grid(10, 10, patch=patch, stride=stride)


def test_more_patches_than_fit_into_memory_are_an_error() -> None:
    with pytest.raises(PatchError, match=r"100,000,000,000 patches .* use a larger stride"):
        Grid(10**6, 10**5, patch=1, stride=1)
