"""Tiles of images and of attention, against naive ones; annotations; answers on disk."""

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

from ips.errors import DataError
from ips.explain.maps import percentiles
from ips.images import ArrayImage, open_image
from ips.images.image import Header
from ips.viewer import answers, tiles
from ips.viewer.annotations import find_annotations, read_annotations
from ips.viewer.answers import Answer
from ips.viewer.tiles import TILE, AttentionTiles, Place
from tests.viewer.viewer_files import picture

Pixels = npt.NDArray[np.uint8]


def decoded(data: bytes) -> Pixels:
    return np.asarray(PILImage.open(BytesIO(data)).convert("RGBA"))


def stitched(image: ArrayImage, zoom: int) -> tuple[Pixels, Pixels]:
    """Grey values and alpha of all tiles of a zoom."""
    width, height = image.dimensions
    d = 2 ** (tiles.zooms(image) - zoom)
    columns, rows = -(-width // (TILE * d)), -(-height // (TILE * d))
    out = np.zeros((rows * TILE, columns * TILE, 4), dtype=np.uint8)
    for row in range(rows):
        for column in range(columns):
            at = tiles.place(image, zoom, column, row)
            assert at is not None
            part = slice(row * TILE, (row + 1) * TILE), slice(column * TILE, (column + 1) * TILE)
            out[part] = decoded(tiles.image_tile(image, at))
    return out[..., 0], out[..., 3]


@pytest.mark.parametrize("zoom", [0, 1, 2])
def test_the_tiles_of_a_zoom_are_the_image(zoom: int) -> None:
    pixels = picture(1000, 600)
    grey, alpha = stitched(ArrayImage(pixels), zoom)
    d = 2 ** (2 - zoom)
    small = pixels.reshape(600 // d, d, 1000 // d, d).mean(axis=(1, 3))
    h, w = small.shape
    assert np.abs(grey[:h, :w] - small).max() < 6  # JPEG
    assert (alpha[:h, :w] == 255).all()
    assert not alpha[h:].any()
    assert not alpha[:, w:].any()


def test_a_tile_that_is_too_large_to_read_is_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    image = ArrayImage(picture(1900, 1100))
    whole, alpha = stitched(image, 0)
    monkeypatch.setattr(tiles, "_REGION", 512)
    parts, parts_alpha = stitched(image, 0)
    assert np.array_equal(alpha, parts_alpha)
    assert np.abs(whole.astype(int) - parts).max() <= 2


def test_a_level_that_is_nearly_right_is_read_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    image = ArrayImage(picture(1000, 600))
    image.header = Header(((4000, 2402), (1000, 600)), 1, (None, None))
    levels: list[int] = []
    monkeypatch.setattr(
        image, "_read", lambda level, x, y, w, h: levels.append(level) or np.zeros((h, w, 1), "u1")
    )
    tiles.image_tile(image, Place(1024, 1024, 4))
    assert levels == [1]


def test_there_are_no_tiles_beyond_the_image() -> None:
    image = ArrayImage(picture(1000, 600))
    assert tiles.zooms(image) == 2
    assert tiles.place(image, 2, 3, 2) == Place(768, 512, 1)
    for zoom, column, row in [(2, 4, 0), (2, 0, 3), (2, -1, 0), (2, 0, -1), (3, 0, 0), (-1, 0, 0)]:
        assert tiles.place(image, zoom, column, row) is None
    assert tiles.place(image, 10**30, 0, 0) is None
    assert tiles.place(image, 1, 10**40, 0) is None


def test_a_small_image_has_one_tile() -> None:
    image = ArrayImage(picture(40, 30))
    assert tiles.zooms(image) == 0
    alpha = decoded(tiles.image_tile(image, Place(0, 0, 1)))[..., 3]
    assert alpha[:30, :40].all()
    assert alpha.sum() == 255 * 30 * 40


def test_a_thumbnail_is_the_patch() -> None:
    pixels = picture(400, 400)
    small = decoded(tiles.thumbnail(ArrayImage(pixels), 30, 70, 50))[..., 0]
    assert np.array_equal(small, pixels[70:120, 30:80])
    large = decoded(tiles.thumbnail(ArrayImage(pixels), 30, 70, 300))
    assert large.shape == (tiles.THUMBNAIL, tiles.THUMBNAIL, 4)


@given(
    cell=st.sampled_from([7.0, 50.0, 409.6]),
    offset=st.tuples(st.integers(0, 300), st.integers(0, 300)),
    corner=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    seed=st.integers(0, 100),
)
def test_attention_is_where_its_cells_are(
    cell: float, offset: tuple[int, int], corner: tuple[int, int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    attention = rng.random((2, 9, 11)).astype(np.float32)
    attention[:, rng.random((9, 11)) < 0.2] = np.nan
    attention[:, 3, 4] = 0
    drawn = AttentionTiles(attention, cell, offset)
    at = Place(corner[0] * TILE, corner[1] * TILE, 1)
    values = drawn.values(1, at)
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


def test_zooming_out_takes_the_highest_of_the_cells_that_there_are() -> None:
    attention = np.arange(1, 33 * 32 + 1, dtype=np.float32).reshape(1, 33, 32)
    attention[0, 10:12, 10:12] = np.nan
    attention[0, 4, 4] = np.nan
    drawn = AttentionTiles(attention, 10.0, (0, 0))
    fine = drawn.values(0, Place(0, 0, 10))  # a pixel is a cell
    coarse = drawn.values(0, Place(0, 0, 20))
    assert np.isnan(coarse[5, 5])
    assert coarse[2, 2] == np.nanmax(fine[4:6, 4:6])
    assert coarse[8, 3] == np.nanmax(fine[16:18, 6:8])
    assert np.isfinite(coarse[16, :16]).all()  # the last row stands alone
    assert np.isnan(coarse[17:]).all()
    assert np.isfinite(drawn.values(0, Place(0, 0, 320))).sum() == 2


@given(cell=st.floats(5, 60), zoom=st.integers(0, 5), place=st.tuples(*[st.integers(0, 39)] * 2))
def test_a_single_patch_that_stands_out_is_seen_at_every_zoom(
    cell: float, zoom: int, place: tuple[int, int]
) -> None:
    attention = np.ones((1, 40, 40), np.float32)
    attention[0][place] = 2
    drawn = AttentionTiles(attention, cell, (0, 0))
    d, size = 2**zoom, int(40 * cell)
    corners = range(0, size + 1, TILE * d)
    shown = [drawn.values(0, Place(x, y, d)) >= 0.95 for y in corners for x in corners]
    assert any(tile.any() for tile in shown)


def test_what_is_low_is_transparent() -> None:
    attention = np.arange(1, 101, dtype=np.float32).reshape(1, 10, 10)
    drawn = AttentionTiles(attention, 10.0, (0, 0))
    every = decoded(drawn.tile(0, Place(0, 0, 1), colours="viridis", above=0.0))
    top = decoded(drawn.tile(0, Place(0, 0, 1), colours="viridis", above=0.9))
    assert (every[..., 3] > 0).sum() == 100 * 100
    assert (top[..., 3] > 0).sum() == 10 * 100
    assert np.array_equal(top[90:100, 0:100], every[90:100, 0:100])
    other = decoded(drawn.tile(0, Place(0, 0, 1), colours="magma", above=0.0))
    assert not np.array_equal(other, every)
    assert np.array_equal(
        decoded(tiles.colour_bar("viridis"))[0, -1], every[95, 95]
    )  # the highest has the last colour
    nothing = decoded(drawn.tile(0, Place(512, 0, 1), colours="viridis", above=0.0))
    assert not nothing[..., 3].any()


# Annotations

ASAP = """<?xml version="1.0"?>
<ASAP_Annotations><Annotations>
 <Annotation Name="A 0" Type="Polygon" PartOfGroup="Tumor" Color="#F4FA58"><Coordinates>
  <Coordinate Order="1" X="10" Y="0"/><Coordinate Order="0" X="0" Y="0"/>
  <Coordinate Order="2" X="10" Y="10.5"/></Coordinates></Annotation>
 <Annotation Name="dots" Type="PointSet" PartOfGroup="None" Color="red"><Coordinates>
  <Coordinate Order="0" X="1" Y="2"/><Coordinate Order="1" X="3" Y="4"/></Coordinates></Annotation>
</Annotations><AnnotationGroups><Group Name="Tumor" Color="#00ff00"/></AnnotationGroups>
</ASAP_Annotations>"""


@pytest.fixture
def margined() -> ArrayImage:
    """A slide of which a part was scanned."""
    image = ArrayImage(picture(100, 100))
    image.header = Header(((100, 100),), 1, (None,), bounds=(20, 30, 50, 50))
    return image


def test_asap_counts_from_the_corner_of_the_file(tmp_path: Path, margined: ArrayImage) -> None:
    (tmp_path / "a.xml").write_text(ASAP)
    tumour, one, two = read_annotations(tmp_path / "a.xml", margined)
    assert tumour.lines == [[(0, 0), (10, 0), (10, 10.5)]]
    assert (tumour.kind, tumour.name, tumour.colour) == ("polygon", "Tumor", "#f4fa58")
    assert [o.lines for o in (one, two)] == [[[(1, 2)]], [[(3, 4)]]]
    assert (one.kind, one.name) == ("point", "dots")
    assert one.colour.startswith("#")


def test_qupath_counts_from_where_the_scan_begins(tmp_path: Path, margined: ArrayImage) -> None:
    square = "[[0, 0], [4, 0], [4, 4], [0, 0]]"
    (tmp_path / "a.geojson").write_text(
        '{"type": "FeatureCollection", "features": ['
        '{"type": "Feature", "geometry": {"type": "MultiPolygon", "coordinates": '
        f'[[{square}], [{square}, {square}]]}}, "properties": {{"classification": '
        '{"name": "Tumor", "color": [200, 0, 300]}}},'
        '{"type": "Feature", "properties": null, "geometry": {"type": "GeometryCollection", '
        '"geometries": [{"type": "Point", "coordinates": [1, 2]}, '
        '{"type": "LineString", "coordinates": [[0, 0], [1, 1, 7]]}]}}]}'
    )
    first, second, point, line = read_annotations(tmp_path / "a.geojson", margined)
    assert first.lines == [[(20, 30), (24, 30), (24, 34), (20, 30)]]
    assert (first.name, first.colour, len(second.lines)) == ("Tumor", "#c800ff", 2)
    assert (point.kind, point.lines, point.name) == ("point", [[(21, 32)]], "")
    assert (line.kind, line.lines) == ("line", [[(20, 30), (21, 31)]])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.geojson", "{"),
        ("a.geojson", '{"type": "Polygon"}'),
        ("a.geojson", '{"type": "Point", "coordinates": [NaN, 1]}'),
        ("a.geojson", '{"type": "Sphere", "coordinates": [1, 1]}'),
        ("a.geojson", '{"type": "Point", "coordinates": [1' + 400 * "0" + ", 1]}"),
        ("a.geojson", "[" * 100_000),
        ("a.xml", "<ASAP_Annotations>"),
        ("a.xml", "<html/>"),
        ("a.xml", '<!DOCTYPE x [<!ENTITY a "b">]><ASAP_Annotations/>'),
        ("a.xml", ASAP.replace('X="10"', 'X="ten"')),
        ("a.xml", ASAP.replace(' Y="0"', "")),
    ],
)
def test_annotations_that_cannot_be_read_say_so(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=r"^a\.\w+: these annotations are not shown, "):
        read_annotations(tmp_path / name, ArrayImage(picture(10, 10)))


def test_tiles_are_no_annotations(tmp_path: Path) -> None:
    point = '"geometry": {"type": "Point", "coordinates": [1, 2]}'
    (tmp_path / "a.geojson").write_text(
        f'[{{"properties": {{"objectType": "tile"}}, {point}}}, '
        f'{{"properties": {{"objectType": "annotation", "name": "drawn"}}, {point}}}]'
    )
    found = read_annotations(tmp_path / "a.geojson", ArrayImage(picture(10, 10)))
    assert [outline.name for outline in found] == ["drawn"]


def test_annotations_are_found_by_name(tmp_path: Path) -> None:
    image, folder = tmp_path / "slide.tif", tmp_path / "drawn"
    folder.mkdir()
    (tmp_path / "slide.json").write_text("{}")  # could be anything
    (folder / "slide.xml").write_text(ASAP)
    assert find_annotations(image, None) is None
    assert find_annotations(image, folder) == folder / "slide.xml"
    assert find_annotations(image, folder / "slide.xml") == folder / "slide.xml"
    (tmp_path / "slide.geojson").write_text("{}")
    assert find_annotations(image, None) == tmp_path / "slide.geojson"


# Answers

ANSWER = Answer(
    patches=4,
    extent=50,
    probabilities=[np.array([0.2, 0.8], np.float32), np.array([0.5], np.float32)],
    maps=np.array([[[0.1, np.nan]], [[0.2, 0.3]], [[0.15, 0.3]]], np.float32),
    cell=25.5,
    offset=(3, -4),
    kept=np.array([[0, 50], [50, 0]]),
    attention=np.full((3, 2), 0.5, np.float32),
    classes=np.array([1, 0]),
)


def test_an_answer_comes_back_as_it_was(tmp_path: Path) -> None:
    answers.save(ANSWER, tmp_path / "a")
    back = answers.load(tmp_path / "a")
    assert back is not None
    for name, value in vars(ANSWER).items():
        if name != "probabilities":
            assert np.array_equal(getattr(back, name), value, equal_nan=name == "maps"), name
    found = answers.load_probabilities(tmp_path / "a")
    assert found is not None
    for a, b, c in zip(ANSWER.probabilities, back.probabilities, found, strict=True):
        assert np.array_equal(a, b)
        assert np.array_equal(a, c)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_damaged_answer_is_none(tmp_path: Path) -> None:
    answers.save(ANSWER, tmp_path / "a")
    whole = (tmp_path / "a").read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], bytes(100)):
        (tmp_path / "b").write_bytes(damaged)
        assert answers.load(tmp_path / "b") is None
        assert answers.load_probabilities(tmp_path / "b") is None
    assert answers.load(tmp_path / "c") is None


def test_a_file_is_read_tile_by_tile(tmp_path: Path) -> None:
    pixels = picture(700, 500)
    tifffile.imwrite(tmp_path / "a.tif", pixels, tile=(128, 128))
    image = open_image(tmp_path / "a.tif")
    grey = decoded(tiles.image_tile(image, Place(256, 0, 1)))[..., 0]
    assert np.abs(grey.astype(int) - pixels[:256, 256:512]).max() < 6
