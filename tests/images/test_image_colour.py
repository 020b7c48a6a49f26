"""Transparency, palettes, CMYK and inverted grey, against Pillow or by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tifffile
from PIL import Image as PILImage

from ips.images import open_image
from ips.images.colour import cmyk_to_rgb, over

Pixels = npt.NDArray[np.uint8]


def read_all(path: Path) -> Pixels:
    image = open_image(path)
    pixels = image.read_region((0, 0), 0, image.dimensions)
    assert pixels.shape[2] == image.channels
    return pixels


@pytest.fixture
def layered(picture: Pixels) -> Pixels:
    alpha = np.random.default_rng(1).integers(0, 256, (*picture.shape[:2], 1), dtype=np.uint8)
    return np.concatenate([picture, alpha], axis=2)


def naive_over(layered: Pixels, background: int) -> Pixels:
    alpha = layered[..., -1:] / 255
    return np.rint(layered[..., :-1] * alpha + background * (1 - alpha)).astype(np.uint8)


@pytest.mark.parametrize("background", [0, 255])
def test_over(layered: Pixels, background: int) -> None:
    np.testing.assert_array_equal(over(layered, background), naive_over(layered, background))


def test_cmyk(layered: Pixels) -> None:
    paper = (255 - layered[..., :3].astype(float)) * (255 - layered[..., 3:].astype(float)) / 255
    np.testing.assert_array_equal(cmyk_to_rgb(layered), np.rint(paper).astype(np.uint8))


@pytest.mark.parametrize("channels", [2, 4])
def test_transparent_png(tmp_path: Path, layered: Pixels, channels: int) -> None:
    pixels = np.ascontiguousarray(layered[..., 4 - channels :])
    PILImage.fromarray(pixels).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read_all(tmp_path / "a.png"), naive_over(pixels, 0))


@pytest.mark.parametrize("mode", ["1", "P", "CMYK"])
def test_other_pillow_modes(tmp_path: Path, picture: Pixels, mode: str) -> None:
    path = tmp_path / ("a.jpg" if mode == "CMYK" else "a.png")
    PILImage.fromarray(picture).convert(mode).save(path)
    with PILImage.open(path) as file:
        expected = np.asarray(file.convert("L" if mode == "1" else "RGB"))
    np.testing.assert_array_equal(read_all(path).squeeze(), expected)


def test_palette_with_a_transparent_colour(tmp_path: Path) -> None:
    indices = PILImage.fromarray(np.array([[0, 1], [1, 0]], np.uint8), mode=None).convert("P")
    indices.putpalette([10, 20, 30, 40, 50, 60])
    indices.save(tmp_path / "a.png", transparency=0)
    expected = [[[0, 0, 0], [40, 50, 60]], [[40, 50, 60], [0, 0, 0]]]
    assert read_all(tmp_path / "a.png").tolist() == expected


@pytest.mark.parametrize("tile", [None, (32, 32)])
def test_transparent_tiff(tmp_path: Path, layered: Pixels, tile: tuple[int, int] | None) -> None:
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, layered, photometric="rgb", extrasamples=["unassalpha"], tile=tile)
    np.testing.assert_array_equal(read_all(path), naive_over(layered, 0))
    tifffile.imwrite(path, layered, photometric="rgb", extrasamples=["assocalpha"], tile=tile)
    np.testing.assert_array_equal(read_all(path), layered[..., :3])


def test_transparent_grey_tiff(tmp_path: Path, layered: Pixels) -> None:
    path, grey = tmp_path / "a.tif", np.ascontiguousarray(layered[..., 2:])
    options: dict[str, Any] = {"photometric": "minisblack", "planarconfig": "contig"}
    tifffile.imwrite(path, grey, extrasamples=["unassalpha"], tile=(32, 32), **options)
    np.testing.assert_array_equal(read_all(path), naive_over(grey, 0))


def test_palette_tiff(tmp_path: Path, picture: Pixels) -> None:
    table = np.random.default_rng(2).integers(0, 2**16, (3, 256), dtype=np.uint16)
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, picture[..., 0], photometric="palette", colormap=table, tile=(32, 32))
    expected = (table >> 8).astype(np.uint8).T[picture[..., 0]]
    np.testing.assert_array_equal(read_all(path), expected)


def test_cmyk_tiff(tmp_path: Path, layered: Pixels) -> None:
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, layered, photometric="separated", tile=(32, 32))
    np.testing.assert_array_equal(read_all(path), cmyk_to_rgb(layered))


def test_inverted_grey_tiff(tmp_path: Path, picture: Pixels) -> None:
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, picture[..., 0], photometric="miniswhite", tile=(32, 32))
    np.testing.assert_array_equal(read_all(path)[..., 0], 255 - picture[..., 0])
