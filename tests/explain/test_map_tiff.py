"""The TIFF of an attention map: readable by tifffile, OpenSlide and ips, at the right position."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import openslide
import pytest
import tifffile

import ips
from ips.explain import AttentionMap, attention_map, percentiles
from ips.explain.map_tiff import write_map_tiff
from ips.explain.maps import image_area
from ips.images import open_image
from ips.patches import ImagePatches


def slide(width: int = 3000, height: int = 2000) -> ImagePatches:
    """Scanned from 300, 100 on, in patches of 100 px, and no whole number of them."""
    image = open_image(np.zeros((height, width), np.uint8))
    image.bounds = (300, 100, width - 450, height - 150)
    image.mpp = (0.5, 0.25)
    source = ips.open_patches(image, patch_size=100, stride=50)
    assert isinstance(source, ImagePatches)
    return source


@pytest.fixture
def source() -> ImagePatches:
    return slide()


@pytest.fixture
def attention(source: ImagePatches) -> AttentionMap:
    return attention_map(source, np.random.default_rng(0).random(len(source)))


@pytest.mark.parametrize("crop", [True, False])
def test_map_covers_the_image(
    source: ImagePatches, attention: AttentionMap, tmp_path: Path, crop: bool
) -> None:
    path, area = tmp_path / "m.tif", image_area(source, crop=crop)
    write_map_tiff(path, attention, area=area, mpp=source.image.mpp, task="grade")
    left, top, width, height = area
    with ips.open_image(path) as image:
        w, h = image.dimensions
        assert max(w, h) >= 1024
        assert image.level_count >= 3
        assert w / h == pytest.approx(width / height, rel=0.002)
        assert image.mpp == pytest.approx((0.5 * width / w, 0.25 * height / h), rel=1e-3)
        pixels = image.read_region((0, 0), 0, (w, h))[..., 0]
    # every cell is where its patches are, and nothing is anywhere else
    scaled = np.rint(255 * percentiles(attention.values))
    for y in range(0, h, 7):
        for x in range(0, w, 7):
            u = (left + (x + 0.5) * width / w - 300) / 50
            v = (top + (y + 0.5) * height / h - 100) / 50
            inside = 0 <= u < scaled.shape[1] and 0 <= v < scaled.shape[0]
            assert pixels[y, x] == (scaled[int(v), int(u)] if inside else 0)
    with tifffile.TiffFile(path) as file:
        about = json.loads(file.pages.first.description)
    assert about["task"] == "grade"
    assert about["offset"] == [left, top]
    assert about["downsample"] == pytest.approx([width / w, height / h])
    assert about["raw"]["1.0"] == attention.values.max()


def test_each_level_averages_the_finer_one(
    source: ImagePatches, attention: AttentionMap, tmp_path: Path
) -> None:
    write_map_tiff(tmp_path / "m.tif", attention, area=image_area(source))
    with tifffile.TiffFile(tmp_path / "m.tif") as file:
        assert all(page.is_tiled for page in file.pages)
        assert [page.is_reduced for page in file.pages] == [n > 0 for n in range(len(file.pages))]
        levels = [page.asarray().astype(float) for page in file.pages]
    assert max(levels[-1].shape) <= 256
    for fine, coarse in pairwise(levels):
        h, w = (2 * (side // 2) for side in fine.shape)
        if (h, w) == fine.shape:
            mean = fine.reshape(h // 2, 2, w // 2, 2).mean(axis=(1, 3))
            np.testing.assert_allclose(coarse, mean, atol=0.51)
    assert [path.name for path in tmp_path.iterdir()] == ["m.tif"]  # no temporary file


def test_openslide_reads_the_file(
    source: ImagePatches, attention: AttentionMap, tmp_path: Path
) -> None:
    write_map_tiff(tmp_path / "m.tif", attention, area=image_area(source), mpp=(0.5, 0.5))
    pixels = tifffile.imread(tmp_path / "m.tif")
    with openslide.OpenSlide(tmp_path / "m.tif") as file:
        assert file.dimensions == pixels.shape[::-1]
        assert file.level_count >= 2
        region = np.asarray(file.read_region((500, 300), 0, (64, 64)))
    assert np.array_equal(region[..., 0], pixels[300:364, 500:564])


def test_size_does_not_grow_with_the_resolution(tmp_path: Path) -> None:
    attention = AttentionMap(np.random.default_rng(0).random((512, 512)), 256.0, (0, 0))
    write_map_tiff(tmp_path / "m.tif", attention, area=(0, 0, 131_072, 131_072))
    with ips.open_image(tmp_path / "m.tif") as image:
        assert image.dimensions == (1024, 1024)


def test_a_small_image_is_not_enlarged(tmp_path: Path) -> None:
    attention = AttentionMap(np.ones((2, 3)), 10.0, (0, 0))
    write_map_tiff(tmp_path / "m.tif", attention, area=(0, 0, 35, 20))
    with ips.open_image(tmp_path / "m.tif") as image:
        assert image.level_dimensions == ((35, 20),)
        assert image.mpp is None


def test_a_narrow_strip(tmp_path: Path) -> None:
    attention = AttentionMap(np.random.default_rng(0).random((1, 3000)), 1.0, (0, 0))
    write_map_tiff(tmp_path / "m.tif", attention, area=(0, 0, 3000, 1))
    assert tifffile.imread(tmp_path / "m.tif").shape == (1, 3000)
