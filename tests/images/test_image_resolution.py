"""Micrometres per pixel and magnification, against a plain resize of a plain crop."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image as PILImage

from ips.errors import ImageError
from ips.images import Image, downsample_for, open_image, read_at
from tests.images.picture_files import reduced, write_svs, write_tiff

Pixels = npt.NDArray[np.uint8]


@pytest.fixture
def slide(tmp_path: Path, picture: Pixels) -> Image:
    """0.25 µm per pixel, 40x, levels of downsample 1 and 2."""
    return open_image(write_svs(tmp_path / "a.svs", [picture, reduced(picture, 2)]))


def resized(pixels: Pixels, size: tuple[int, int]) -> Pixels:
    return np.asarray(PILImage.fromarray(pixels).resize(size, PILImage.Resampling.BOX))


def test_downsamples(slide: Image) -> None:
    assert downsample_for(slide) == 1
    assert downsample_for(slide, level=1) == 2
    assert downsample_for(slide, mpp=0.25) == 1
    assert downsample_for(slide, mpp=0.6) == pytest.approx(2.4)
    assert downsample_for(slide, magnification=20) == 2
    assert downsample_for(slide, magnification=5) == 8
    assert downsample_for(slide, scale=0.25) == 4
    assert downsample_for(slide, scale=0.505) == 2  # nearly level 1


@pytest.mark.parametrize(("mpp", "expected"), [(0.246, 1), (0.254, 1), (0.495, 2), (0.505, 2)])
def test_a_level_that_is_nearly_right_is_read_as_it_is(
    slide: Image, mpp: float, expected: float
) -> None:
    assert downsample_for(slide, mpp=mpp) == expected


def test_level_is_read_without_resampling(slide: Image, picture: Pixels) -> None:
    region = read_at(slide, (20, 30), downsample=2.0, size=(25, 35))
    np.testing.assert_array_equal(region, reduced(picture, 2)[15:50, 10:35])


def test_resampled_from_level_0(slide: Image, picture: Pixels) -> None:
    region = read_at(slide, (7, 9), downsample=1.6, size=(50, 40))
    np.testing.assert_array_equal(region, resized(picture[9:73, 7:87], (50, 40)))


def test_resampled_from_the_next_finer_level(slide: Image, picture: Pixels) -> None:
    region = read_at(slide, (10, 20), downsample=4.0, size=(20, 15))
    np.testing.assert_array_equal(region, resized(reduced(picture, 2)[10:40, 5:45], (20, 15)))


def test_resampled_grey(tmp_path: Path, picture: Pixels) -> None:
    grey = np.ascontiguousarray(picture[..., 0])
    region = read_at(open_image(grey), (10, 20), downsample=3.0, size=(20, 15))
    np.testing.assert_array_equal(region[..., 0], resized(grey[20:65, 10:70], (20, 15)))


def test_beyond_the_edge_is_background(slide: Image) -> None:
    assert (read_at(slide, (1000, 1000), downsample=3.0, size=(4, 4)) == 255).all()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"mpp": 0.1}, "mpp=0.1 is finer than the file, which has 0.25 µm per pixel"),
        ({"magnification": 60}, "magnification=60 is finer than the file, which has 40x"),
        ({"mpp": 0}, "mpp=0 is not a resolution"),
        ({"mpp": -1.0}, "mpp=-1.0 is not a resolution"),
        ({"mpp": math.nan}, "mpp=nan is not a resolution"),
        ({"mpp": math.inf}, "mpp=inf is not a resolution"),
        ({"magnification": 0}, "magnification=0 is not a resolution"),
        ({"magnification": math.nan}, "magnification=nan is not a resolution"),
        ({"level": 2}, "no level 2: choose from 0 to 1"),
        ({"level": 0, "mpp": 1.0}, "give one of them"),
    ],
)
def test_impossible_resolutions_are_errors(
    slide: Image, asked: dict[str, float], message: str
) -> None:
    with pytest.raises(ImageError, match=message):
        downsample_for(slide, **asked)  # type: ignore[arg-type]


def test_scale_not_stated(tmp_path: Path, picture: Pixels) -> None:
    image = open_image(write_tiff(tmp_path / "a.tif", [picture]))
    with pytest.raises(ImageError, match=r"a\.tif does not state its micrometres .* use level="):
        downsample_for(image, mpp=0.5)
    with pytest.raises(ImageError, match=r"a\.tif does not state its magnification, .* use mpp="):
        downsample_for(image, magnification=20)
