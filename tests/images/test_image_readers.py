"""Every reader gives the same pixels for the same picture."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import tifffile
from PIL import Image as PILImage

import ips.images
from ips.errors import ImageError
from ips.images import (
    ArrayImage,
    Image,
    NpyImage,
    PillowImage,
    TiffImage,
    open_image,
)
from ips.images.slide import SlideImage
from tests.images.picture_files import HEIGHT, LOSSLESS, WIDTH, reduced, write_svs, write_tiff

Pixels = npt.NDArray[np.uint8]


def naive_crop(pixels: Pixels, x: int, y: int, width: int, height: int, background: int) -> Pixels:
    out = np.full((height, width, pixels.shape[2]), background, np.uint8)
    for row in range(height):
        for column in range(width):
            if 0 <= y + row < pixels.shape[0] and 0 <= x + column < pixels.shape[1]:
                out[row, column] = pixels[y + row, x + column]
    return out


class TestEveryReader:
    """Conformance tests of every image class."""

    def test_header(self, image: Image) -> None:
        assert image.dimensions == image.level_dimensions[0] == (WIDTH, HEIGHT)
        assert image.level_count == len(image.level_dimensions) == len(image.level_downsamples)
        assert image.level_downsamples[0] == 1
        assert image.bounds == (0, 0, WIDTH, HEIGHT)
        assert image.channels == 3
        slide = isinstance(image, SlideImage) or image.level_count > 1
        assert image.background == (255 if slide else 0)

    def test_the_constructor_leaves_no_file_open(self, image: Image) -> None:
        assert image._handle is None

    @pytest.mark.parametrize(
        ("x", "y", "width", "height"),
        [
            (0, 0, WIDTH, HEIGHT),
            (0, 0, 1, 1),
            (47, 31, 3, 3),  # over the corner of four tiles
            (WIDTH - 1, HEIGHT - 1, 1, 1),
            (-5, -7, 30, 20),
            (WIDTH - 10, HEIGHT - 10, 25, 25),
            (-10, -10, WIDTH + 20, HEIGHT + 20),
            (WIDTH, 0, 4, 4),  # wholly outside
            (-50, -50, 8, 8),
        ],
    )
    def test_region(
        self, image: Image, picture: Pixels, x: int, y: int, width: int, height: int
    ) -> None:
        region = image.read_region((x, y), 0, (width, height))
        assert region.dtype == np.uint8
        expected = naive_crop(picture, x, y, width, height, image.background)
        np.testing.assert_array_equal(region, expected)

    def test_levels(self, image: Image, picture: Pixels) -> None:
        for level, downsample in enumerate(image.level_downsamples):
            by = round(downsample)
            assert downsample == pytest.approx(by, rel=0.02)
            region = image.read_region((16 * by, 8 * by), level, (20, 15))
            np.testing.assert_array_equal(region, reduced(picture, by)[8:23, 16:36])

    def test_best_level(self, image: Image) -> None:
        downsamples = image.level_downsamples
        assert image.get_best_level_for_downsample(0.5) == 0
        assert image.get_best_level_for_downsample(1.5) == 0
        assert image.get_best_level_for_downsample(1000) == image.level_count - 1
        for level, downsample in enumerate(downsamples):
            assert image.get_best_level_for_downsample(downsample) == level

    def test_pickle_before_and_after_reading(self, image: Image, picture: Pixels) -> None:
        for _ in range(2):
            copy = pickle.loads(pickle.dumps(image))
            assert copy._handle is None
            assert copy.level_dimensions == image.level_dimensions
            assert (copy.mpp, copy.bounds) == (image.mpp, image.bounds)
            assert copy.level_downsamples == image.level_downsamples
            for one in (copy, image):
                np.testing.assert_array_equal(
                    one.read_region((5, 6), 0, (9, 8))[0], picture[6, 5:14]
                )

    def test_threads(self, image: Image, picture: Pixels) -> None:
        def right(seed: int) -> bool:
            x, y = np.random.default_rng(seed).integers(0, 100, 2)
            region = image.read_region((x, y), 0, (30, 30))
            return np.array_equal(region, picture[y : y + 30, x : x + 30])

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(right, range(60)))

    def test_close_and_read_again(self, image: Image, picture: Pixels) -> None:
        with image:
            image.read_region((0, 0), 0, (4, 4))
        assert image._handle is None
        np.testing.assert_array_equal(image.read_region((0, 0), 0, (4, 4)), picture[:4, :4])
        image.close()

    def test_tiles(self, image: Image) -> None:
        whole = isinstance(image, ArrayImage | NpyImage | PillowImage)
        for level in range(image.level_count):
            tile = image.tile_size(level)
            assert tile is None if whole else tile is None or min(tile) > 0

    @pytest.mark.parametrize("level", [-1, 9])
    def test_no_such_level(self, image: Image, level: int) -> None:
        with pytest.raises(ImageError, match=f"no level {level}: choose from 0 to"):
            image.read_region((0, 0), level, (4, 4))

    def test_an_empty_region_is_an_error(self, image: Image) -> None:
        with pytest.raises(ImageError, match="0 x 4 px is empty"):
            image.read_region((0, 0), 0, (0, 4))

    def test_repr(self, image: Image) -> None:
        assert f"{image.name}: 150 x 132 px" in repr(image)


def test_every_kind_goes_to_its_reader(tmp_path: Path, picture: Pixels) -> None:
    readers = {"array": ArrayImage, "npy": NpyImage, "png": PillowImage}
    readers |= {"svs": SlideImage, "openslide": SlideImage}
    for kind, make in LOSSLESS.items():
        assert type(make(tmp_path, picture)) is readers.get(kind, TiffImage), kind


@pytest.mark.parametrize("suffix", ["jpg", "bmp", "webp", "gif"])
def test_pillow_formats(tmp_path: Path, picture: Pixels, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    PILImage.fromarray(picture).save(path)
    with PILImage.open(path) as file:
        expected = np.asarray(file.convert("RGB"))
    region = open_image(path).read_region((20, 30), 0, (50, 40))
    np.testing.assert_array_equal(region, expected[30:70, 20:70])


def test_jpeg_tiles(tmp_path: Path) -> None:
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    smooth = np.stack([x, y, (x + y) // 2], axis=2).astype(np.uint8)
    path = write_tiff(tmp_path / "a.tif", [smooth], tile=(64, 64), compression="jpeg")
    expected = tifffile.imread(path)
    image = open_image(path)
    assert isinstance(image, TiffImage)
    np.testing.assert_array_equal(image.read_region((0, 0), 0, (WIDTH, HEIGHT)), expected)
    assert np.abs(expected.astype(int) - smooth).mean() < 5  # RGB, not the YCbCr that is stored


@pytest.mark.parametrize("kind", ["array", "npy", "png", "tiled", "uncompressed"])
def test_grey_stays_one_channel(tmp_path: Path, picture: Pixels, kind: str) -> None:
    grey = np.ascontiguousarray(picture[..., 0])
    if kind == "tiled":
        path = write_tiff(tmp_path / "a.tif", [grey], photometric="minisblack")
        image = open_image(path)
    elif kind == "uncompressed":
        tifffile.imwrite(tmp_path / "a.tif", grey)
        image = open_image(tmp_path / "a.tif")
    else:
        image = LOSSLESS[kind](tmp_path, grey)
    assert image.channels == 1
    region = image.read_region((140, 3), 0, (20, 5))
    expected = naive_crop(grey[..., None], 140, 3, 20, 5, 0)
    np.testing.assert_array_equal(region, expected)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")  # the point of it
def test_reads_from_a_forked_worker(tmp_path: Path, picture: Pixels) -> None:
    image = LOSSLESS["tiled"](tmp_path, picture)
    image.read_region((0, 0), 0, (4, 4))  # the parent's file is open
    context = multiprocessing.get_context("fork")
    worker = context.Process(target=_read_in_child, args=(image, picture))
    with ThreadPoolExecutor(1) as other:
        other.submit(image._lock.acquire).result()  # and another thread is in the middle of it
        worker.start()
        other.submit(image._lock.release).result()
    worker.join(20)
    assert worker.exitcode == 0


def _read_in_child(image: Image, picture: Pixels) -> None:
    np.testing.assert_array_equal(image.read_region((90, 90), 0, (9, 9)), picture[90:99, 90:99])


def test_svs_states_its_scale(tmp_path: Path, picture: Pixels) -> None:
    image = open_image(write_svs(tmp_path / "a.svs", [picture]))
    assert image.mpp == (0.25, 0.25)
    assert image.magnification == 40


def test_public_names() -> None:
    assert sorted(ips.images.__all__) == list(ips.images.__all__)
    assert all(hasattr(ips.images, name) for name in ips.images.__all__)
