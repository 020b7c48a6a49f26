"""Images of any number of bands, and their conversion to grey and RGB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tifffile
from PIL import Image as PILImage

from ips.errors import ImageError
from ips.images import open_image, read_at
from ips.images.colour import as_rgb, over, to_channels
from ips.patches import open_patches

Pixels = npt.NDArray[np.uint8]
BANDS = 5


@pytest.fixture
def bands() -> Pixels:
    return np.random.default_rng(0).integers(0, 256, (60, 80, BANDS), dtype=np.uint8)


def read_all(source: Path | Pixels) -> Pixels:
    image = open_image(source)
    pixels = image.read_region((0, 0), 0, image.dimensions)
    assert pixels.shape[2] == image.channels
    return pixels


LAYOUTS: dict[str, dict[str, Any]] = {
    "pixel by pixel": {"planarconfig": "contig"},
    "band by band": {"planarconfig": "separate"},
    "tiles": {"planarconfig": "contig", "tile": (32, 32), "compression": "deflate"},
    "tiles band by band": {"planarconfig": "separate", "tile": (32, 32)},
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("count", [2, 4, BANDS])
def test_multispectral_tiff(tmp_path: Path, bands: Pixels, layout: str, count: int) -> None:
    path, options = tmp_path / "a.tif", LAYOUTS[layout]
    pixels = np.ascontiguousarray(bands[..., :count])
    stored = pixels.transpose(2, 0, 1) if options["planarconfig"] == "separate" else pixels
    extra = ["unspecified"] * (count - 1)
    tifffile.imwrite(path, stored, photometric="minisblack", extrasamples=extra, **options)
    np.testing.assert_array_equal(read_all(path), pixels)


def test_channels_of_ome_tiff(tmp_path: Path, bands: Pixels) -> None:
    path = tmp_path / "a.ome.tif"
    planes = bands.transpose(2, 0, 1)
    tifffile.imwrite(path, planes, photometric="minisblack", metadata={"axes": "CYX"})
    np.testing.assert_array_equal(read_all(path), bands)


def test_arrays(tmp_path: Path, bands: Pixels) -> None:
    np.save(tmp_path / "a.npy", bands)
    for source in (bands, tmp_path / "a.npy"):
        np.testing.assert_array_equal(read_all(source), bands)


def test_a_fourth_band_is_not_transparency(tmp_path: Path, bands: Pixels) -> None:
    path, pixels = tmp_path / "a.tif", np.ascontiguousarray(bands[..., :4])
    tifffile.imwrite(path, pixels, photometric="rgb", extrasamples=["unspecified"])
    np.testing.assert_array_equal(read_all(path), pixels)


def test_transparency_after_more_bands(tmp_path: Path, bands: Pixels) -> None:
    path, extra = tmp_path / "a.tif", ["unspecified", "unassalpha"]
    tifffile.imwrite(path, bands, photometric="rgb", extrasamples=extra)
    np.testing.assert_array_equal(read_all(path), over(bands, 0))


def test_too_many_bands(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"has shape \(2, 2, 600\)"):
        open_image(np.zeros((2, 2, 600), np.uint8))
    path, planes = tmp_path / "a.tif", np.zeros((600, 16, 16), np.uint8)
    tifffile.imwrite(path, planes, photometric="minisblack", planarconfig="separate")
    with pytest.raises(ImageError, match="has 600 channels as MINISBLACK"):
        open_image(path)


@pytest.mark.parametrize("count", [1, 2, 3, 4, BANDS])
def test_each_band_is_averaged_alone(bands: Pixels, count: int) -> None:
    pixels = np.ascontiguousarray(bands[..., :count])
    found = read_at(open_image(pixels), (8, 4), downsample=4, size=(10, 6))
    blocks = pixels[4:28, 8:48].reshape(6, 4, 10, 4, count).astype(float)
    assert found.shape == (6, 10, count)
    assert np.abs(found - blocks.mean(axis=(1, 3))).max() <= 1  # rounded per axis


def test_grey_is_the_luma_of_pillow(bands: Pixels) -> None:
    colour = np.ascontiguousarray(bands[..., :3])
    expected = np.asarray(PILImage.fromarray(colour).convert("L"))
    for pixels in (colour, bands):  # of more bands, the first three count
        np.testing.assert_array_equal(to_channels(pixels, "grey")[..., 0], expected)


def test_rgb_of_any_number_of_bands(bands: Pixels) -> None:
    for count in (1, 2):
        found = as_rgb(bands[..., :count])
        np.testing.assert_array_equal(found, np.repeat(bands[..., :1], 3, axis=2))
        assert found.flags.c_contiguous
    for count in (3, BANDS):
        np.testing.assert_array_equal(as_rgb(bands[..., :count]), bands[..., :3])
    assert to_channels(bands, "as-is") is bands


@pytest.mark.parametrize("channels", ["rgb", "grey", "as-is"])
@pytest.mark.parametrize("count", [1, 3, BANDS])
@pytest.mark.parametrize("kind", ["array", "npy", "tiff"])
def test_patches_are_converted(
    tmp_path: Path, bands: Pixels, kind: str, count: int, channels: Any
) -> None:
    pixels = np.ascontiguousarray(bands[..., :count])
    source: Path | Pixels = tmp_path / f"a.{kind}"
    if kind == "array":
        source = pixels
    elif kind == "npy":
        np.save(tmp_path / "a.npy", pixels)
    else:
        options: dict[str, Any] = {"photometric": "minisblack", "tile": (32, 32)}
        planes = pixels.transpose(2, 0, 1).squeeze()
        tifffile.imwrite(source, planes, planarconfig=None if count == 1 else "separate", **options)
    patches = open_patches(source, patch_size=20, edge="pad", channels=channels)
    expected = np.pad(to_channels(pixels, channels), ((0, 20), (0, 20), (0, 0)))
    assert patches.shape == (expected.shape[2], 20, 20)
    read = patches.read(range(len(patches))).numpy()
    for (x, y), patch in zip(patches.coords, read, strict=True):
        naive = expected[y : y + 20, x : x + 20].transpose(2, 0, 1)
        np.testing.assert_array_equal(patch, naive)


def test_a_colour_image_in_a_colour_model_is_not_copied(bands: Pixels) -> None:
    colour = np.ascontiguousarray(bands[..., :3])
    assert to_channels(colour, "rgb") is colour


def test_figures_show_the_first_three_bands(bands: Pixels) -> None:
    source = open_patches(bands, patch_size=20)
    view = source.parts[0].thumbnail(80)
    np.testing.assert_array_equal(view.pixels, bands[..., :3])
