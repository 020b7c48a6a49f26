"""Thumbnails of every kind of source against naive averages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import tifffile
import torch
from torch import Tensor

from ips.data.synthetic.scene import ScenePatches
from ips.errors import PatchError
from ips.patches import Grid, ImagePatches, Indices, MemoryPatches, open_patches, thumbnail

Pixels = npt.NDArray[np.uint8]


@pytest.fixture
def picture() -> Pixels:
    return np.random.default_rng(0).integers(0, 256, (120, 180, 3), dtype=np.uint8)


def averaged(pixels: Pixels, factor: int) -> npt.NDArray[np.float64]:
    """The mean of each square of ``factor`` pixels."""
    h, w, c = pixels.shape
    squares = pixels.reshape(h // factor, factor, w // factor, factor, c).astype(float)
    return np.asarray(squares.mean(axis=(1, 3)))


def scene(side: int = 240, things: int = 12) -> ScenePatches:
    rng = np.random.default_rng(1)
    cells = rng.integers(0, 256, (things, 28, 28), dtype=np.uint8)
    places = rng.integers(0, side - 28 + 1, (things, 2))
    return ScenePatches(cells, places=places, grid=Grid(side, side, patch=50, stride=50), name="s")


class Counted(MemoryPatches):
    """Records the largest number of patches read at once."""

    most = 0

    def read(self, indices: Indices) -> Tensor:
        self.most = max(self.most, len(indices))
        return super().read(indices)


@pytest.mark.parametrize("block", [16 * 2**20, 1000, 1], ids=["whole", "blocks", "pixels"])
@pytest.mark.parametrize("kind", ["array", "strips"])
def test_thumbnail_of_an_image_is_its_average(
    tmp_path: Path, picture: Pixels, kind: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thumbnail, "BLOCK", block)
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, picture, photometric="rgb", rowsperstrip=7, compression="lzw")
    source = open_patches(picture if kind == "array" else path, patch_size=20)
    view = source.parts[0].thumbnail(45)
    assert view.scale == 0.25
    assert view.offset == (0.0, 0.0)
    np.testing.assert_allclose(view.pixels, averaged(picture, 4), atol=1)  # whole numbers


def test_thumbnail_never_enlarges(picture: Pixels) -> None:
    view = open_patches(picture, patch_size=20).parts[0].thumbnail(800)
    np.testing.assert_array_equal(view.pixels, picture)
    assert view.scale == 1


def test_thumbnail_reads_small_blocks_of_the_coarsest_sufficient_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    big = np.full((1024, 2048, 3), 200, dtype=np.uint8)
    path = tmp_path / "a.tif"
    with tifffile.TiffWriter(path) as file:
        file.write(big, photometric="rgb", tile=(64, 64), subifds=0)
        file.write(big[::4, ::4] - 100, photometric="rgb", tile=(64, 64), subfiletype=1)
    source = open_patches(path, patch_size=64)
    monkeypatch.setattr(thumbnail, "BLOCK", 10_000)
    asked: list[tuple[int, int]] = []
    assert isinstance(source, ImagePatches)
    read_region = source.image.read_region

    def watched(location: tuple[int, int], level: int, size: tuple[int, int]) -> Pixels:
        asked.append((level, size[0] * size[1]))
        return read_region(location, level, size)

    monkeypatch.setattr(source.image, "read_region", watched)
    coarse = source.parts[0].thumbnail(256)
    assert coarse.pixels.shape == (128, 256, 3)
    assert (coarse.pixels == 100).all()
    assert {level for level, _ in asked} == {1}
    asked.clear()
    assert (source.parts[0].thumbnail(1024).pixels == 200).all()
    assert {level for level, _ in asked} == {0}
    assert max(area for _, area in asked) <= 10_000


def test_thumbnail_starts_where_the_scanned_part_does(picture: Pixels) -> None:
    source = open_patches(picture, patch_size=20)
    assert isinstance(source, ImagePatches)
    source.image.bounds = (60, 40, 80, 40)
    view = source.parts[0].thumbnail(40)
    assert view.offset == (60.0, 40.0)
    np.testing.assert_allclose(view.pixels, averaged(picture[40:80, 60:140], 2), atol=1)


@pytest.mark.parametrize("block", [16 * 2**20, 700])
def test_thumbnail_of_a_scene_is_that_of_its_dense_image(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thumbnail, "BLOCK", block)
    source = scene()
    view = source.parts[0].thumbnail(80)
    expected = averaged(source.dense()[..., None], 3)
    np.testing.assert_allclose(view.pixels, np.repeat(expected, 3, axis=2), atol=1)


def test_thumbnail_of_patches_reads_few_at_a_time(
    picture: Pixels, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = open_patches(picture, patch_size=20)
    everything = grid.read(range(len(grid)))
    source = Counted(everything, coords=grid.coords + np.array([1000, 500]))
    monkeypatch.setattr(thumbnail, "BLOCK", 16 * 5 * 1200)
    view = source.parts[0].thumbnail(45)
    assert view.offset == (1000.0, 500.0)
    np.testing.assert_allclose(view.pixels, averaged(picture, 4), atol=1)
    assert source.most == 5


def test_thumbnail_of_overlapping_patches_is_their_mean() -> None:
    patches = torch.stack([torch.full((1, 4, 4), v, dtype=torch.uint8) for v in (100, 200)])
    view = MemoryPatches(patches, coords=np.array([[0, 0], [2, 0]])).parts[0].thumbnail(800)
    assert view.pixels[0, :, 0].tolist() == [100, 100, 150, 150, 200, 200]


def test_thumbnail_of_features_shows_where_patches_are() -> None:
    coords = np.array([[0, 0], [256, 0], [256, 256]])
    source = MemoryPatches(torch.zeros(3, 8), coords=coords)
    assert source.parts[0].patch_side == 256
    view = source.parts[0].thumbnail(100)
    assert view.pixels.shape == (100, 100, 3)
    assert view.scale == pytest.approx(100 / 512)
    there, nothing = view.pixels[25, 25], view.pixels[75, 25]
    assert (there < nothing).all()


def test_thumbnail_of_one_row_is_high_enough_to_see() -> None:
    source = MemoryPatches(torch.zeros(500, 8))
    view = source.parts[0].thumbnail(100)
    assert view.pixels.shape == (10, 100, 3)
    assert (source.coords[0, 1] + 0.5 - view.offset[1]) * view.scale == pytest.approx(5)


def test_thumbnail_of_an_empty_source_is_an_error() -> None:
    with pytest.raises(PatchError, match="no patch"):
        MemoryPatches(torch.zeros(0, 8), name="empty.h5").parts[0].thumbnail(800)
