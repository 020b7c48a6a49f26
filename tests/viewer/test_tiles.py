"""Tiles of images and of attention, against naive ones; answers on disk."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import tifffile
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as PILImage

from ips.explain.maps import percentiles
from ips.explain.spread import Spread
from ips.images import ArrayImage, Image, open_image
from ips.viewer import answers, tiles
from ips.viewer.answers import Answer, PartAnswer
from ips.viewer.tiles import TILE, AttentionTiles, MapStyle, Tile, rank_maps
from tests.viewer.viewer_files import picture

Pixels = npt.NDArray[np.uint8]


def decoded(data: bytes) -> Pixels:
    return np.asarray(PILImage.open(BytesIO(data)).convert("RGBA"))


def tiles_of(
    attention: npt.NDArray[np.float32],
    cell: float,
    offset: tuple[int, int],
    *,
    patches: list[int],
) -> AttentionTiles:
    """The tiles of one image."""
    (ranks,), ratios = rank_maps([attention], patches)
    return AttentionTiles(ranks, ratios, cell=cell, offset=offset)


def stitched(image: ArrayImage, zoom: int) -> tuple[Pixels, Pixels]:
    """Grey values and alpha of all tiles of a zoom."""
    width, height = image.dimensions
    d = 2 ** (tiles.max_zoom(image) - zoom)
    columns, rows = -(-width // (TILE * d)), -(-height // (TILE * d))
    out = np.zeros((rows * TILE, columns * TILE, 4), dtype=np.uint8)
    for row in range(rows):
        for column in range(columns):
            at = tiles.find_tile(image, zoom, column, row)
            assert at is not None
            part = slice(row * TILE, (row + 1) * TILE), slice(column * TILE, (column + 1) * TILE)
            out[part] = decoded(tiles.render_tile(image, at))
    return out[..., 0], out[..., 3]


@pytest.mark.parametrize("zoom", [0, 1, 2])
def test_the_tiles_of_a_zoom_show_the_image(zoom: int) -> None:
    pixels = picture(1000, 600)
    grey, alpha = stitched(ArrayImage(pixels), zoom)
    d = 2 ** (2 - zoom)
    small = pixels.reshape(600 // d, d, 1000 // d, d).mean(axis=(1, 3))
    h, w = small.shape
    assert np.abs(grey[:h, :w] - small).max() < 6  # JPEG
    assert (alpha[:h, :w] == 255).all()
    assert not alpha[h:].any()
    assert not alpha[:, w:].any()


def test_a_tile_that_is_too_large_to_read_is_assembled(monkeypatch: pytest.MonkeyPatch) -> None:
    image = ArrayImage(picture(1900, 1100))
    whole, alpha = stitched(image, 0)
    monkeypatch.setattr(tiles, "_MAX_REGION", 512)
    parts, parts_alpha = stitched(image, 0)
    assert np.array_equal(alpha, parts_alpha)
    assert np.abs(whole.astype(int) - parts).max() <= 2


def test_of_many_bands_the_first_three_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    bands = np.stack([picture(1000, 600, seed=seed) for seed in range(5)], axis=2)
    for most in (4096, 256):  # at once, and assembled from parts
        monkeypatch.setattr(tiles, "_MAX_REGION", most)
        shown, colour = (
            decoded(tiles.render_tile(ArrayImage(np.ascontiguousarray(p)), Tile(0, 0, 2)))
            for p in (bands, bands[..., :3])
        )
        assert np.array_equal(shown, colour)
    patch = decoded(tiles.render_patch(ArrayImage(bands), 10, 20, 50))
    assert np.array_equal(patch[..., :3], bands[20:70, 10:60, :3])


def test_a_level_of_nearly_the_right_resolution_is_not_resampled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    image = ArrayImage(picture(1000, 600))
    Image.__init__(image, "a", levels=((4000, 2402), (1000, 600)), channels=1)
    levels: list[int] = []

    def read(level: int, x: int, y: int, width: int, height: int) -> npt.NDArray[np.uint8]:
        levels.append(level)
        return np.zeros((height, width, 1), np.uint8)

    monkeypatch.setattr(image, "_read", read)
    tiles.render_tile(image, Tile(1024, 1024, 4))
    assert levels == [1]


def test_there_are_no_tiles_outside_the_image() -> None:
    image = ArrayImage(picture(1000, 600))
    assert tiles.max_zoom(image) == 2
    assert tiles.find_tile(image, 2, 3, 2) == Tile(768, 512, 1)
    for zoom, column, row in [(2, 4, 0), (2, 0, 3), (2, -1, 0), (2, 0, -1), (3, 0, 0), (-1, 0, 0)]:
        assert tiles.find_tile(image, zoom, column, row) is None
    assert tiles.find_tile(image, 10**30, 0, 0) is None
    assert tiles.find_tile(image, 1, 10**40, 0) is None


def test_a_small_image_has_one_tile() -> None:
    image = ArrayImage(picture(40, 30))
    assert tiles.max_zoom(image) == 0
    alpha = decoded(tiles.render_tile(image, Tile(0, 0, 1)))[..., 3]
    assert alpha[:30, :40].all()
    assert alpha.sum() == 255 * 30 * 40


def test_a_thumbnail_shows_the_patch() -> None:
    pixels = picture(400, 400)
    small = decoded(tiles.render_patch(ArrayImage(pixels), 30, 70, 50))[..., 0]
    assert np.array_equal(small, pixels[70:120, 30:80])
    large = decoded(tiles.render_patch(ArrayImage(pixels), 30, 70, 300))
    assert large.shape == (tiles.PATCH, tiles.PATCH, 4)


@given(
    cell=st.sampled_from([7.0, 50.0, 409.6]),
    offset=st.tuples(st.integers(0, 300), st.integers(0, 300)),
    corner=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    seed=st.integers(0, 100),
)
def test_attention_is_drawn_at_its_cells(
    cell: float, offset: tuple[int, int], corner: tuple[int, int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    attention = rng.random((2, 9, 11)).astype(np.float32)
    attention[:, rng.random((9, 11)) < 0.2] = np.nan
    attention[:, 3, 4] = 0
    drawn = tiles_of(attention, cell, offset, patches=[80, 80])
    at = Tile(corner[0] * TILE, corner[1] * TILE, 1)
    values = drawn.ranks(1, at)
    ranks = percentiles(attention[1].astype(np.float64))
    for y, x in rng.integers(0, TILE, (20, 2)).tolist():
        column = int(np.floor((at.left + x + 0.5 - offset[0]) / cell))
        row = int(np.floor((at.top + y + 0.5 - offset[1]) / cell))
        inside = 0 <= row < 9 and 0 <= column < 11
        raw = attention[1, row, column] if inside else np.nan
        if not raw > 0:
            assert np.isnan(values[y, x])
        else:
            assert values[y, x] == pytest.approx(ranks[row, column])


def test_zooming_out_takes_the_maximum_and_ignores_nan() -> None:
    attention = np.arange(1, 33 * 32 + 1, dtype=np.float32).reshape(1, 33, 32)
    attention[0, 10:12, 10:12] = np.nan
    attention[0, 4, 4] = np.nan
    drawn = tiles_of(attention, 10.0, (0, 0), patches=[100])
    fine = drawn.ranks(0, Tile(0, 0, 10))  # a pixel is a cell
    coarse = drawn.ranks(0, Tile(0, 0, 20))
    assert np.isnan(coarse[5, 5])
    assert coarse[2, 2] == np.nanmax(fine[4:6, 4:6])
    assert coarse[8, 3] == np.nanmax(fine[16:18, 6:8])
    assert np.isfinite(coarse[16, :16]).all()  # the last row stands alone
    assert np.isnan(coarse[17:]).all()
    assert np.isfinite(drawn.ranks(0, Tile(0, 0, 320))).sum() == 2


@given(cell=st.floats(5, 60), zoom=st.integers(0, 5), place=st.tuples(*[st.integers(0, 39)] * 2))
def test_a_single_high_patch_is_visible_at_every_zoom(
    cell: float, zoom: int, place: tuple[int, int]
) -> None:
    attention = np.ones((1, 40, 40), np.float32)
    attention[0][place] = 2
    drawn = tiles_of(attention, cell, (0, 0), patches=[1600])
    d, size = 2**zoom, int(40 * cell)
    corners = range(0, size + 1, TILE * d)
    shown = [drawn.ranks(0, Tile(x, y, d)) >= 0.95 for y in corners for x in corners]
    assert any(tile.any() for tile in shown)


@pytest.mark.parametrize(("zoom_out", "width"), [(1, 95), (2, 48)])
def test_cells_end_with_the_image(zoom_out: int, width: int) -> None:
    drawn = tiles_of(np.ones((1, 10, 10), np.float32), 10.0, (0, 0), patches=[100])
    tile = decoded(drawn.render(Tile(0, 0, zoom_out), MapStyle(task=0), size=(95, 60)))
    rows, columns = np.nonzero(tile[..., 3])
    assert (columns.max() + 1, rows.max() + 1) == (width, 60 // zoom_out)


def test_low_ranks_are_transparent() -> None:
    attention = np.arange(1, 101, dtype=np.float32).reshape(1, 10, 10)
    drawn = tiles_of(attention, 10.0, (0, 0), patches=[100])
    every = decoded(drawn.render(Tile(0, 0, 1), MapStyle(task=0), size=(1000, 1000)))
    top = decoded(drawn.render(Tile(0, 0, 1), MapStyle(task=0, min_rank=0.9), size=(1000, 1000)))
    assert (every[..., 3] > 0).sum() == 100 * 100
    assert (top[..., 3] > 0).sum() == 10 * 100
    assert np.array_equal(top[90:100, 0:100], every[90:100, 0:100])
    other = decoded(
        drawn.render(Tile(0, 0, 1), MapStyle(task=0, colour_map="magma"), size=(1000, 1000))
    )
    assert not np.array_equal(other, every)
    assert np.array_equal(
        decoded(tiles.render_colour_map("viridis"))[0, -1], every[95, 95]
    )  # the highest has the last colour
    nothing = decoded(drawn.render(Tile(512, 0, 1), MapStyle(task=0), size=(1000, 1000)))
    assert not nothing[..., 3].any()


@given(x=st.floats(-20, 120), y=st.floats(-20, 120), seed=st.integers(0, 20))
def test_a_smooth_map_interpolates_between_centres(x: float, y: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    attention = rng.random((1, 10, 10)).astype(np.float32)
    attention[0, rng.random((10, 10)) < 0.3] = np.nan
    drawn = tiles_of(attention, 10.0, (0, 0), patches=[100])
    tile = Tile(round(x), round(y), 1)
    plain, smooth = drawn.ranks(0, tile), drawn.ranks(0, tile, smooth=True)
    assert np.array_equal(np.isnan(plain), np.isnan(smooth))  # it shows no other places
    ranks = drawn.ranks(0, Tile(0, 0, 10))[:10, :10]
    px = tile.left + 0.5
    py = tile.top + 0.5
    total, weight = 0.0, 0.0
    for row in range(10):
        for column in range(10):
            near = max(0, 1 - abs(py / 10 - row - 0.5)) * max(0, 1 - abs(px / 10 - column - 0.5))
            if near and not np.isnan(ranks[row, column]):
                total, weight = total + near * ranks[row, column], weight + near
    if not np.isnan(smooth[0, 0]):
        assert smooth[0, 0] == pytest.approx(total / weight, abs=1e-5)


def test_the_absolute_scale_is_the_same_for_all_images() -> None:
    flat, peaked = np.full((1, 10, 10), 0.01, np.float32), np.full((1, 10, 10), 0.005, np.float32)
    flat[0, 0, 0], peaked[0, 0, 0] = 0.011, 0.505  # 1.1 and 50.5 times an even share
    size, tile = (100, 100), Tile(0, 0, 1)
    pictures = {}
    for scale in ("rank", "share"):
        for name, attention in {"flat": flat, "peaked": peaked}.items():
            drawn = tiles_of(attention, 10.0, (0, 0), patches=[100])
            style = MapStyle(task=0, scale=scale)
            pictures[scale, name] = decoded(drawn.render(tile, style, size=size))[5, 5]
            ratios = drawn.ratios(0, [0.0, 1.0])
            assert ratios == pytest.approx(100 * attention[0].ravel()[[1, 0]])
    colours = decoded(tiles.render_colour_map("viridis"))[0]
    assert np.array_equal(pictures["rank", "flat"], pictures["rank", "peaked"])
    assert np.array_equal(pictures["share", "flat"], colours[round(255 * np.log10(1.1) / 2)])
    assert np.array_equal(pictures["share", "peaked"], colours[round(255 * np.log10(50.5) / 2)])


def test_a_thumbnail_is_small_and_skipped_for_too_many_pixels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pixels = picture(700, 500)
    tifffile.imwrite(tmp_path / "a.tif", pixels, tile=(128, 128))
    image = open_image(tmp_path / "a.tif")
    data = tiles.render_thumbnail(image)
    assert data is not None
    shown = decoded(data)
    assert shown.shape[:2] == (183, 256)
    assert abs(float(shown[..., 0].mean()) - float(pixels.mean())) < 3
    monkeypatch.setattr(tiles, "_MAX_THUMBNAIL_PIXELS", 700 * 500 - 1)
    assert tiles.render_thumbnail(image) is None


def test_magnifications_are_ranked_among_each_other() -> None:
    low, high = np.array([[[0.1, 0.2]]], np.float32), np.array([[[0.3, 0.4]]], np.float32)
    ranks, ratios = rank_maps([low, high], [4])
    first, second = (AttentionTiles(r, ratios, cell=10.0, offset=(0, 0)) for r in ranks)
    tile = Tile(0, 0, 10)
    assert first.ranks(0, tile)[0, :2].tolist() == pytest.approx([0, 1 / 3])
    assert second.ranks(0, tile)[0, :2].tolist() == pytest.approx([2 / 3, 1])
    assert first.ratios(0, [0, 1]).tolist() == pytest.approx([0.4, 1.6])  # of all


def test_a_map_of_an_area_shows_the_cells_in_it() -> None:
    attention = (np.arange(1, 101) / 5050).reshape(1, 10, 10).astype(np.float32)
    drawn = tiles_of(attention, 100.0, (-200, 300), patches=[100])
    style = MapStyle(task=0, min_rank=0.2)
    shown = decoded(drawn.render_area((100, 500, 600, 300), style))
    assert shown.shape[:2] == (100, 200)  # 3 px to one
    ranks = percentiles(attention[0].astype(np.float64))[2:5, 3:9]
    for row in range(3):
        for column in range(6):
            x, y = round((column + 0.5) * 100 / 3), round((row + 0.5) * 100 / 3)
            assert (shown[y, x, 3] > 0) == (ranks[row, column] >= 0.2)
    assert len(np.unique(shown[50, :, :3], axis=0)) == 6


# Answers

ANSWER = Answer(
    patches=4,
    probabilities=[np.array([0.2, 0.8], np.float32), np.array([0.5], np.float32)],
    parts=[
        PartAnswer(
            image=0,
            extent=50,
            magnification=magnification,
            shares=[0.5, 0.25, 0.375],
            maps=np.array([[[0.1, np.nan]], [[0.2, 0.3]], [[0.15, 0.3]]], np.float32),
            cell=25.5,
            offset=(3, -4),
        )
        for magnification in (5.0, 20.0)
    ],
    kept=np.array([[0, 50], [50, 0]]),
    part_numbers=np.array([1, 0]),
    attention=np.full((3, 2), 0.5, np.float32),
    ratios=np.array([[1, 2], [3, 4], [2, 3]], np.float32),
    spreads=[Spread(4, 0.5, 1.2), Spread(3, 0.4, 1.0), Spread(4, 0.45, 1.1)],
    classes=np.array([1, 0]),
    screened="screened, recall 0.97 (0.95 to 0.98) of the attention: 2 of 4 patches scored",
)


def test_an_answer_survives_saving_and_loading(tmp_path: Path) -> None:
    ANSWER.save(tmp_path / "a")
    back = Answer.load(tmp_path / "a")
    for name, value in vars(ANSWER).items():
        if name not in ("probabilities", "parts"):
            assert np.array_equal(getattr(back, name), value), name
    for part, other in zip(ANSWER.parts, back.parts, strict=True):
        assert part.numbers() == other.numbers()
        assert np.array_equal(part.maps, other.maps, equal_nan=True)
    found = answers.load_probabilities(tmp_path / "a")
    for a, b, c in zip(ANSWER.probabilities, back.probabilities, found, strict=True):
        assert np.array_equal(a, b)
        assert np.array_equal(a, c)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_damaged_or_missing_answer_is_an_error(tmp_path: Path) -> None:
    ANSWER.save(tmp_path / "a")
    whole = (tmp_path / "a").read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], bytes(100)):
        (tmp_path / "b").write_bytes(damaged)
        for path in (tmp_path / "b", tmp_path / "missing"):
            for load in (Answer.load, answers.load_probabilities):
                with pytest.raises(answers.UNREADABLE):
                    load(path)


def test_an_answer_with_a_flipped_bit_is_an_error(tmp_path: Path) -> None:
    ANSWER.save(tmp_path / "a")
    whole = (tmp_path / "a").read_bytes()
    start = 8 + int.from_bytes(whole[:8], "little")
    for place in (whole.index(b'"patches":"') + 11, start, (start + len(whole)) // 2, -1):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        (tmp_path / "b").write_bytes(damaged)
        with pytest.raises(answers.UNREADABLE):
            Answer.load(tmp_path / "b")


def test_a_file_is_read_tile_by_tile(tmp_path: Path) -> None:
    pixels = picture(700, 500)
    tifffile.imwrite(tmp_path / "a.tif", pixels, tile=(128, 128))
    image = open_image(tmp_path / "a.tif")
    grey = decoded(tiles.render_tile(image, Tile(256, 0, 1)))[..., 0]
    assert np.abs(grey.astype(int) - pixels[:256, 256:512]).max() < 6
