"""The whole image of a source, and patches centred on its cells, against plain slices."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from ips.errors import PatchError
from ips.models.whole_image import CentredPatches, scaled_copy, whole_image
from ips.patches import MemoryPatches, PatchSource, PatchSubset, open_patches
from tests.patches.conformance import PatchSourceConformance

PICTURE = np.random.default_rng(0).integers(1, 256, size=(48, 64, 3), dtype=np.uint8)
CELLS = 4, 5  # of 12 x 12 px: 64 px hold five, and 4 px are left
SIDE = 16  # of a patch, which reaches 2 px over its cell


def padded_slices() -> Tensor:
    """Cut every patch from the picture with a wide black frame."""
    frame = np.pad(PICTURE, ((SIDE, SIDE), (SIDE, SIDE), (0, 0)))
    corners = [(12 * row - 2, 12 * column - 2) for row in range(4) for column in range(5)]
    slices = [
        frame[SIDE + y : 2 * SIDE + y, SIDE + x : 2 * SIDE + x].transpose(2, 0, 1)
        for y, x in corners
    ]
    return torch.from_numpy(np.stack(slices))


class TestCentredPatches(PatchSourceConformance):
    @pytest.fixture
    def source(self) -> PatchSource:
        return CentredPatches(open_patches(PICTURE, patch_size=SIDE), CELLS)

    @pytest.fixture
    def expected(self) -> Tensor:
        return padded_slices()

    def test_patches_of_a_part_lie_in_its_area(self, source: PatchSource) -> None:
        (part,) = source.parts
        assert (part.area, part.size, part.step) == ((0, 0, 64, 48), (64, 48), 12)
        assert source.coords.min(axis=0).tolist() == [-2, -2]
        assert (source.coords.max(axis=0) + SIDE).tolist() == [62, 50]  # over the lower edge

    def test_a_thumbnail_shows_the_area(self, source: PatchSource) -> None:
        view = source.parts[0].thumbnail(64)
        assert np.array_equal(view.pixels, PICTURE)  # the image alone, without the padding
        assert view.offset == (0, 0)


def test_patches_smaller_than_their_cell_lie_in_its_middle() -> None:
    source = CentredPatches(open_patches(PICTURE, patch_size=8), (2, 2))  # cells of 32 x 24 px
    assert source.coords.tolist() == [[12, 8], [44, 8], [12, 32], [44, 32]]
    assert torch.equal(
        source.read([3])[0], torch.from_numpy(PICTURE[32:40, 44:52]).permute(2, 0, 1)
    )


def test_coordinates_are_in_full_resolution_pixels() -> None:
    coords = np.array([[100, 50], [120, 50], [100, 70], [120, 70]])  # an area inside of an image
    patches = torch.zeros(4, 1, 10, 10, dtype=torch.uint8)  # read at half the resolution
    source = CentredPatches(MemoryPatches(patches, coords=coords, extent=20), (4, 4))
    assert source.coords[[0, 1, 4]].tolist() == [[96, 46], [106, 46], [96, 56]]
    assert source.extent == 20


def test_a_sample_of_patches_is_not_an_image() -> None:
    some = PatchSubset(open_patches(PICTURE, patch_size=SIDE), np.arange(5))
    with pytest.raises(PatchError, match="its 5 patches are not a full grid"):
        CentredPatches(some, CELLS)


def test_the_whole_image_is_that_of_the_file() -> None:
    for stride in (SIDE, 8):
        source = open_patches(PICTURE, patch_size=SIDE, stride=stride)
        image = whole_image(source, device=torch.device("cpu"))
        assert torch.equal(image, torch.from_numpy(PICTURE).permute(2, 0, 1))


def test_a_scaled_copy_is_the_mean_of_its_pixels() -> None:
    picture = torch.rand(1, 2, 12, 18)
    copy = scaled_copy(picture, 1 / 3)
    assert copy.shape == (1, 2, 4, 6)
    assert copy.mean() == pytest.approx(float(picture.mean()), abs=0.02)
    flat = scaled_copy(torch.full((1, 1, 100, 133), 0.7), 1 / 3)
    assert flat.shape == (1, 1, 33, 44)
    assert torch.allclose(flat, torch.tensor(0.7))
