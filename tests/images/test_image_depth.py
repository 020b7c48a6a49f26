"""Images that do not have 8 bits: value * 255 / white, with one white for all images."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import numpy.typing as npt
import pytest
import tifffile
from PIL import Image as PILImage

from ips.errors import ImageError
from ips.images import open_image
from ips.images.colour import cmyk_to_rgb, over, to_bytes
from ips.patches import open_patches

Pixels = npt.NDArray[np.uint8]
Deep = npt.NDArray[np.uint16]


def read_all(source: Path | npt.NDArray[Any], white: float | None = None) -> Pixels:
    image = open_image(source, white=white)
    pixels = image.read_region((0, 0), 0, image.dimensions)
    assert pixels.dtype == np.uint8
    assert pixels.shape[2] == image.channels
    return pixels


def naive(values: npt.NDArray[Any], white: float) -> Pixels:
    """The rule by hand."""
    scaled = np.nan_to_num(values.astype(np.float64)) * 255 / white
    return np.rint(np.minimum(np.maximum(scaled, 0), 255)).astype(np.uint8)


def deep(*shape: int, high: int = 2**16) -> Deep:
    return np.random.default_rng(3).integers(0, high, shape, dtype=np.uint16)


def png(path: Path, values: Deep) -> Path:
    path.write_bytes(imagecodecs.png_encode(values))
    return path


TIFFS: dict[str, dict[str, Any]] = {
    "mapped": {},
    "big-endian": {"byteorder": ">"},
    "tiles": {"tile": (32, 32)},
    "deflate": {"tile": (32, 32), "compression": "deflate", "predictor": True},
    "lzw": {"rowsperstrip": 16, "compression": "lzw", "predictor": True},
    "big-endian lzw": {"compression": "lzw", "byteorder": ">"},
    "lzma": {"compression": "lzma"},
}


@pytest.mark.parametrize("white", [None, 4095, 1000.5])
@pytest.mark.parametrize("channels", [1, 3])
class TestSixteenBits:
    def test_png(self, tmp_path: Path, channels: int, white: float | None) -> None:
        values = deep(40, 50, channels)
        found = read_all(png(tmp_path / "a.png", values.squeeze()), white)
        np.testing.assert_array_equal(found, naive(values, white or 65535))

    @pytest.mark.parametrize("kind", TIFFS)
    def test_tiff(self, tmp_path: Path, channels: int, white: float | None, kind: str) -> None:
        values, path = deep(70, 50, channels), tmp_path / "a.tif"
        photometric = "rgb" if channels == 3 else "minisblack"
        tifffile.imwrite(path, values.squeeze(), photometric=photometric, **TIFFS[kind])
        np.testing.assert_array_equal(read_all(path, white), naive(values, white or 65535))

    def test_arrays(self, tmp_path: Path, channels: int, white: float | None) -> None:
        values, path = deep(40, 50, channels), tmp_path / "a.npy"
        np.save(path, values)
        for source in (values, path):
            np.testing.assert_array_equal(read_all(source, white), naive(values, white or 65535))
            patches = open_patches(source, patch_size=10, white=white).read([7]).numpy()
            expected = naive(values[10:20, 20:30], white or 65535).transpose(2, 0, 1)
            np.testing.assert_array_equal(patches[0], expected)


@pytest.mark.parametrize("channels", [2, 4])
def test_transparency_of_a_deep_png_has_its_own_range(tmp_path: Path, channels: int) -> None:
    values = deep(40, 50, channels)
    found = read_all(png(tmp_path / "a.png", values), 4095)
    colour, alpha = naive(values[..., :-1], 4095), naive(values[..., -1:], 65535)
    np.testing.assert_array_equal(found, over(np.concatenate([colour, alpha], axis=2), 0))


def test_transparency_of_a_deep_tiff_has_its_own_range(tmp_path: Path) -> None:
    values, path = deep(40, 50, 4), tmp_path / "a.tif"
    tifffile.imwrite(path, values, photometric="rgb", extrasamples=["unassalpha"])
    colour, alpha = naive(values[..., :-1], 4095), naive(values[..., -1:], 65535)
    expected = over(np.concatenate([colour, alpha], axis=2), 0)
    np.testing.assert_array_equal(read_all(path, 4095), expected)


def test_deep_cmyk_and_inverted_grey(tmp_path: Path) -> None:
    values, path = deep(40, 50, 4), tmp_path / "a.tif"
    tifffile.imwrite(path, values, photometric="separated")
    np.testing.assert_array_equal(read_all(path), cmyk_to_rgb(naive(values, 65535)))
    tifffile.imwrite(path, values[..., 0], photometric="miniswhite")
    np.testing.assert_array_equal(read_all(path)[..., 0], 255 - naive(values[..., 0], 65535))


def test_an_image_is_not_stretched_to_its_own_values(tmp_path: Path) -> None:
    dark, bright = np.full((20, 20), 1000, np.uint16), np.full((20, 20), 1000, np.uint16)
    bright[0, 0] = 60_000
    first, second = (read_all(png(tmp_path / f"{v.max()}.png", v)) for v in (dark, bright))
    assert first[5, 5] == second[5, 5] == round(1000 * 255 / 65535)


def test_eight_bits_stay_as_they_are_whatever_white_is(tmp_path: Path, picture: Pixels) -> None:
    PILImage.fromarray(picture).save(tmp_path / "a.png")
    tifffile.imwrite(tmp_path / "a.tif", picture, photometric="rgb")
    np.save(tmp_path / "a.npy", picture)
    for suffix in ("png", "tif", "npy"):
        np.testing.assert_array_equal(read_all(tmp_path / f"a.{suffix}", 4095), picture)


@pytest.mark.parametrize(
    ("stated", "white"),
    [(4095, 4095), (1023, 1023), (3977, 65535), (255, 65535), (65535, 65535)],
    ids=["12 bits", "10 bits", "largest of this image", "nonsense", "16 bits"],
)
def test_a_tiff_may_state_its_largest_value(tmp_path: Path, stated: int, white: int) -> None:
    values, path = deep(40, 50, high=1024), tmp_path / "a.tif"
    tifffile.imwrite(path, values, extratags=[(281, 3, 1, stated, True)])
    np.testing.assert_array_equal(read_all(path)[..., 0], naive(values, white))
    np.testing.assert_array_equal(read_all(path, 2000)[..., 0], naive(values, 2000))


def test_ome_states_significant_bits(tmp_path: Path) -> None:
    values, path = deep(40, 50, high=4096), tmp_path / "a.ome.tif"
    tifffile.imwrite(path, values, metadata={"axes": "YX", "SignificantBits": 12})
    assert b"SignificantBits" in path.read_bytes()
    np.testing.assert_array_equal(read_all(path)[..., 0], naive(values, 4095))


def test_twelve_bits_packed(tmp_path: Path) -> None:
    values, path = deep(40, 51, high=4096), tmp_path / "a.tif"
    tifffile.imwrite(path, values, bitspersample=12)
    np.testing.assert_array_equal(read_all(path)[..., 0], naive(values, 4095))


@pytest.mark.parametrize("compression", ["raw", "group4", "tiff_lzw"])
def test_black_and_white_scans(tmp_path: Path, picture: Pixels, compression: str) -> None:
    ink, path = picture[..., 0] > 128, tmp_path / "a.tif"
    PILImage.fromarray(ink).save(path, compression=compression)
    np.testing.assert_array_equal(read_all(path)[..., 0], ink * np.uint8(255))
    np.testing.assert_array_equal(read_all(ink)[..., 0], ink * np.uint8(255))


def save_tiff(path: Path, values: npt.NDArray[Any]) -> None:
    tifffile.imwrite(path, values, compression="lzw", predictor=True)


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint32", "int16"])
@pytest.mark.parametrize(("name", "save"), [("a.npy", np.save), ("a.tif", save_tiff)])
def test_other_types_need_white(
    tmp_path: Path, dtype: str, name: str, save: Callable[[Path, npt.NDArray[Any]], None]
) -> None:
    values = np.random.default_rng(0).uniform(-100, 3000, (40, 50)).astype(dtype)
    if dtype == "float32":
        values[3, 4] = np.nan
    save(tmp_path / name, values)
    with pytest.raises(ImageError, match=rf"{name} is {dtype}, .*: set patches\.white to"):
        open_image(tmp_path / name)
    np.testing.assert_array_equal(read_all(tmp_path / name, 2000)[..., 0], naive(values, 2000))


def test_the_rule() -> None:
    values = np.array([[0, 1, 128, 4095, 65535]], np.uint16)
    assert to_bytes(values, 4095).tolist() == [[0, 0, 8, 255, 255]]
    assert to_bytes(values.astype(np.float32), 4095).tolist() == [[0, 0, 8, 255, 255]]
