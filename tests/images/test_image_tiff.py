"""TIFF files: tiles, their cache, padded pyramids and resolution tags."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tifffile

import ips.images.tiff_level
from ips.errors import ImageError
from ips.images import TiffImage, open_image
from ips.images.slide import SlideImage
from ips.images.tiff_level import TiffLevel
from ips.images.tile_cache import TileCache
from tests.images.picture_files import reduced, write_tiff

Pixels = npt.NDArray[np.uint8]


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Records the indices of the tiles that are decoded during a test."""
    seen: list[int] = []
    decode = TiffLevel._decode_segment

    def spy(self: TiffLevel, page: Any, index: int, lock: Any) -> Pixels | None:
        seen.append(index)
        return decode(self, page, index, lock)

    monkeypatch.setattr(TiffLevel, "_decode_segment", spy)
    return seen


def test_only_overlapping_tiles_are_decoded(
    tmp_path: Path, picture: Pixels, decoded: list[int]
) -> None:
    image = open_image(write_tiff(tmp_path / "a.tif", [picture]))  # 4 columns of 48 x 32
    image.read_region((50, 40), 0, (40, 20))
    assert decoded == [5]
    image.read_region((50, 40), 0, (50, 30))
    assert decoded == [5, 6, 9, 10]


def test_cache_holds_no_more_than_its_limit(
    tmp_path: Path, picture: Pixels, decoded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    tile = 48 * 32 * 3
    monkeypatch.setattr("ips.images.tiff.CACHE_BYTES", 3 * tile)
    image = TiffImage(write_tiff(tmp_path / "a.tif", [picture]))
    for _ in range(2):
        region = image.read_region((0, 0), 0, image.dimensions)
        np.testing.assert_array_equal(region, picture)
        assert image._handle.cache.nbytes <= 3 * tile
    assert len(decoded) == 2 * 20  # all of it, twice: it does not fit


def test_cache_drops_the_least_recently_used_tile() -> None:
    cache = TileCache(limit=20)
    tile = np.zeros(10, np.uint8)
    made: list[str] = []

    def get(key: str) -> None:
        def make() -> Pixels:
            made.append(key)
            return tile

        cache.get(key, make)

    for key in "abacab":  # c pushes b out, not a
        get(key)
    assert made == ["a", "b", "c", "b"]
    assert cache.nbytes == 20


def test_cache_keeps_one_tile_above_its_limit() -> None:
    cache = TileCache(limit=5)
    large = np.zeros(10, np.uint8)
    assert cache.get("a", lambda: large) is large
    assert cache.get("a", lambda: np.ones(10, np.uint8)) is large
    assert cache.nbytes == 10


def test_cache_counts_right_under_threads() -> None:
    cache = TileCache(limit=50)

    def get(key: int) -> int:
        return int(cache.get(key % 9, lambda: np.full(10, key % 9, np.uint8))[0])

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(get, range(500))) == [key % 9 for key in range(500)]
    assert cache.nbytes == sum(tile.nbytes for tile in cache._tiles.values()) <= 50


@pytest.mark.parametrize("fails", [False, True])
def test_a_tile_missed_by_two_threads_is_decoded_once(fails: bool) -> None:
    cache = TileCache(limit=50)
    started, missed, finish = (threading.Event() for _ in range(3))
    made: list[int] = []

    class Coming(dict[Any, Any]):
        def get(self, key: Any, default: Any = None) -> Any:
            if key in self:
                missed.set()
            return super().get(key, default)

    def decode() -> Pixels:
        made.append(1)
        started.set()
        assert finish.wait(20)
        if fails:
            raise ImageError("damaged")
        return np.zeros(10, np.uint8)

    cache._pending = Coming()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(cache.get, "a", decode)
        assert started.wait(20)
        second = pool.submit(cache.get, "a", decode)
        other = cache.get("b", lambda: np.ones(10, np.uint8))  # does not wait
        assert other[0] == 1
        assert missed.wait(20)
        finish.set()
        if fails:
            for one in (first, second):
                with pytest.raises(ImageError, match="damaged"):
                    one.result()
        else:
            assert first.result() is second.result()
    assert len(made) == 1
    assert cache._pending == {}
    if fails:  # and the next one tries again
        assert cache.get("a", lambda: np.ones(10, np.uint8))[0] == 1


def test_sparse_tiles_cost_nothing(tmp_path: Path, decoded: list[int]) -> None:
    path, side, tile = tmp_path / "a.tif", 60_000, 2048
    count = -(-side // tile)
    full = np.full((tile, tile), 7, np.uint8)
    tiles = (full if number == 0 else None for number in range(count**2))
    tifffile.imwrite(
        path, tiles, shape=(side, side), dtype=np.uint8, tile=(tile, tile), compression="deflate"
    )
    image = open_image(path)
    for y in range(0, side, 1999):
        assert not image.read_region((50_000, y), 0, (500, 500)).any()
    assert decoded == []
    region = image.read_region((tile - 1, tile - 1), 0, (2, 2))
    assert region[..., 0].tolist() == [[7, 0], [0, 0]]


def write_sparse(path: Path, sizes: list[tuple[int, int]]) -> Path:
    """An RGB pyramid that stores only the first tile of each level."""
    full = np.full((64, 64, 3), 7, np.uint8)
    options: dict[str, Any] = {"photometric": "rgb", "tile": (64, 64), "compression": "deflate"}
    with tifffile.TiffWriter(path) as file:
        for level, (width, height) in enumerate(sizes):
            count = -(-width // 64) * -(-height // 64)
            file.write(
                iter([full, *[None] * (count - 1)]),
                shape=(height, width, 3),
                dtype=np.uint8,
                subfiletype=int(level > 0),
                **options,
            )
    return path


def test_sparse_pyramid_is_white_from_either_reader(tmp_path: Path) -> None:
    path = write_sparse(tmp_path / "a.tif", [(320, 256), (160, 128)])
    tiff, slide = TiffImage(path), SlideImage(path)
    assert isinstance(open_image(path), TiffImage)
    assert tiff.level_dimensions == slide.level_dimensions
    for level, (width, height) in enumerate(tiff.level_dimensions):
        expected = np.full((height + 20, width + 20, 3), 255, np.uint8)  # beyond the image too
        expected[10:74, 10:74] = 7
        corner = (-10 * 2**level, -10 * 2**level)
        for image in (tiff, slide):
            region = image.read_region(corner, level, (width + 20, height + 20))
            np.testing.assert_array_equal(region, expected)


def test_sparse_picture_without_a_pyramid_is_black(tmp_path: Path) -> None:
    image = open_image(write_sparse(tmp_path / "a.tif", [(320, 256)]))
    expected = np.zeros((276, 340, 3), np.uint8)
    expected[10:74, 10:74] = 7
    np.testing.assert_array_equal(image.read_region((-10, -10), 0, (340, 276)), expected)


@pytest.mark.parametrize("kind", ["unassalpha", "assocalpha"])
def test_transparent_pyramid_lies_on_white(tmp_path: Path, picture: Pixels, kind: str) -> None:
    alpha = np.random.default_rng(1).integers(0, 256, (*picture.shape[:2], 1), dtype=np.uint8)
    share = alpha / 255
    shown = np.rint(picture * share) if kind == "assocalpha" else picture
    layered = np.concatenate([shown.astype(np.uint8), alpha], axis=2)
    path = write_tiff(tmp_path / "a.tif", [layered, reduced(layered, 2)], extrasamples=[kind])
    region = open_image(path).read_region((0, 0), 0, (150, 132))
    np.testing.assert_allclose(region, picture * share + 255 * (1 - share), atol=1)


def test_one_strip_too_large_to_decode(
    tmp_path: Path, picture: Pixels, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.tif"
    options: dict[str, Any] = {"photometric": "rgb", "rowsperstrip": 132}
    monkeypatch.setattr(ips.images.tiff_level, "MAX_PIXELS", 150 * 132 - 1)
    tifffile.imwrite(path, picture, compression="deflate", **options)
    with pytest.raises(
        ImageError, match=r"a\.tif stores 150 x 132 px of level 0 in one piece.*til"
    ):
        open_image(path)
    tifffile.imwrite(path, picture, **options)  # plain bytes are not decoded
    np.testing.assert_array_equal(open_image(path).read_region((0, 0), 0, (150, 132)), picture)


def test_uncompressed_strips_are_mapped(
    tmp_path: Path, picture: Pixels, decoded: list[int]
) -> None:
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, picture.transpose(2, 0, 1), photometric="rgb", planarconfig="separate")
    image = open_image(path)
    assert image.tile_size(0) is None
    np.testing.assert_array_equal(image.read_region((3, 4), 0, (50, 60)), picture[4:64, 3:53])
    assert decoded == []


def test_levels_padded_to_whole_tiles(tmp_path: Path) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (448, 320), dtype=np.uint8)
    levels = [picture]
    for by in (2, 4, 8):
        small = reduced(picture, by)
        rows, columns = (-side % 64 for side in small.shape)
        levels.append(np.pad(small, ((0, rows), (0, columns))))
    path = tmp_path / "a.tif"
    write_tiff(path, levels, photometric="minisblack", tile=(64, 64))
    image = open_image(path)
    assert image.level_dimensions == ((320, 448), (160, 224), (80, 112), (40, 56))
    assert image.level_downsamples == (1.0, 2.0, 4.0, 8.0)
    for level, by in enumerate((1, 2, 4, 8)):
        width, height = image.level_dimensions[level]
        region = image.read_region((0, 0), level, (width, height))
        np.testing.assert_array_equal(region[..., 0], reduced(picture, by))


def test_a_page_with_another_image_is_not_a_level(tmp_path: Path, picture: Pixels) -> None:
    path = write_tiff(tmp_path / "a.tif", [picture, picture[:40, :100], reduced(picture, 2)])
    assert open_image(path).level_dimensions == ((150, 132), (75, 66))


@pytest.mark.parametrize(("unit", "value"), [("centimeter", 40_000), ("inch", 40_000 * 2.54)])
def test_resolution_tags(tmp_path: Path, picture: Pixels, unit: str, value: float) -> None:
    path = tmp_path / "a.tif"
    scale: dict[str, Any] = {"resolution": (value, value / 2), "resolutionunit": unit}
    image = open_image(write_tiff(path, [picture], **scale))
    assert image.mpp == pytest.approx((0.25, 0.5))
    assert image.magnification is None


def test_no_resolution(tmp_path: Path, picture: Pixels) -> None:
    assert open_image(write_tiff(tmp_path / "a.tif", [picture])).mpp is None


def test_ome_scale(tmp_path: Path, picture: Pixels) -> None:
    scale = {"PhysicalSizeX": 250.0, "PhysicalSizeXUnit": "nm", "PhysicalSizeY": 0.26}
    metadata = {"axes": "YXS", **scale}
    path = write_tiff(tmp_path / "a.ome.tif", [picture], ome=True, metadata=metadata)
    assert open_image(path).mpp == pytest.approx((0.25, 0.26))


def test_ome_objective(tmp_path: Path, picture: Pixels) -> None:
    path = write_tiff(tmp_path / "a.ome.tif", [picture], ome=True, metadata={"axes": "YXS"})
    with tifffile.TiffFile(path) as file:
        text = file.ome_metadata
    objective = '<Instrument ID="Instrument:0"><Objective ID="O" NominalMagnification="20"/>'
    text = text.replace("<Image ", objective + "</Instrument><Image ", 1)
    tifffile.tiffcomment(path, text.encode())
    assert open_image(path).magnification == 20
