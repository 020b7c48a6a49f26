"""EXIF orientation of images that are decoded whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image as PILImage
from PIL import ImageOps

from ips.images import PillowImage, open_image
from ips.patches import open_patches

Pixels = npt.NDArray[np.uint8]


def save(path: Path, pixels: Pixels, orientation: int) -> Path:
    exif = PILImage.Exif()
    exif[274] = orientation
    PILImage.fromarray(pixels).save(path, exif=exif)
    return path


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["jpg", "png", "webp"])
def test_every_orientation(tmp_path: Path, picture: Pixels, suffix: str, orientation: int) -> None:
    path = save(tmp_path / f"a.{suffix}", picture, orientation)
    with PILImage.open(path) as file:
        expected = np.asarray(ImageOps.exif_transpose(file).convert("RGB"))
    image = open_image(path)
    assert isinstance(image, PillowImage)
    assert image.orientation == orientation
    height, width = expected.shape[:2]
    assert image.dimensions == (width, height)
    assert (width > height) == (orientation < 5)  # quarter turns swap the sides
    np.testing.assert_array_equal(image.read_region((0, 0), 0, (width, height)), expected)
    patch = open_patches(path, patch_size=20, stride=10).read([3])[0].numpy()
    np.testing.assert_array_equal(patch, expected[:20, 30:50].transpose(2, 0, 1))


def test_a_grey_image_of_16_bits_is_turned(tmp_path: Path) -> None:
    values = np.arange(600, dtype=np.uint16).reshape(20, 30) * 100
    exif = PILImage.Exif()
    exif[274] = 6
    PILImage.fromarray(values).save(tmp_path / "a.png", exif=exif)
    image = open_image(tmp_path / "a.png")
    assert image.dimensions == (20, 30)
    found = image.read_region((0, 0), 0, (20, 30))[..., 0]
    np.testing.assert_array_equal(found, np.rot90(np.rint(values / 257), -1))


@pytest.mark.parametrize("stored", [0, 9, 77])
def test_an_unknown_orientation_is_ignored(tmp_path: Path, picture: Pixels, stored: int) -> None:
    image = open_image(save(tmp_path / "a.png", picture, stored))
    np.testing.assert_array_equal(image.read_region((0, 0), 0, image.dimensions), picture)


@pytest.mark.parametrize("exif", [b"Exif\0\0", b"Exif\0\0II*\0\xff\xff\xff\xff", b"nonsense"])
@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_damaged_exif_data_is_ignored(tmp_path: Path, picture: Pixels, exif: bytes) -> None:
    PILImage.fromarray(picture).save(tmp_path / "a.png", exif=exif)
    image = open_image(tmp_path / "a.png")
    np.testing.assert_array_equal(image.read_region((0, 0), 0, image.dimensions), picture)
