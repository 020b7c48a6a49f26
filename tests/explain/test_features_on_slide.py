"""Exports and figures of features in front of their slide, against those of its patches."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from ips.annotations import polygon_feature, read_outlines, write_geojson
from ips.errors import DataError
from ips.explain.export import omissions, write_explanation
from ips.explain.figures.closeup import closeup_page
from ips.explain.figures.drawing import draw_outlines, draw_thumbnail
from ips.explain.figures.page import DPI, Page
from ips.patches import PatchSource, SlideFinder, Thumbnail, open_features, open_patches
from tests.explain.explained import explained
from tests.patches.bounded_slide import give_bounds, patches_of, write_features, write_slide


@pytest.fixture
def pixels(tmp_path: Path) -> PatchSource:
    return patches_of(write_slide(tmp_path / "slide.tif"))


@pytest.fixture
def features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PatchSource:
    give_bounds(monkeypatch)
    slide = write_slide(tmp_path / "slide.tif")
    bag = write_features(tmp_path / "slide.tif.h5", patches_of(slide), slide=slide)
    return open_features(bag).on_slide(SlideFinder())


@pytest.mark.parametrize("crop", [True, False])
def test_exports_are_those_of_the_patches_of_the_slide(
    pixels: PatchSource, features: PatchSource, tmp_path: Path, crop: bool
) -> None:
    ours, theirs = (replace(explained(source), name="a") for source in (features, pixels))
    features.name = pixels.name  # GeoJSON identifies a patch by the name of its source
    for folder, each in ((tmp_path / "ours", ours), (tmp_path / "theirs", theirs)):
        folder.mkdir()
        write_explanation(folder, each, stem="a", crop=crop, all_patches=True)
    names = sorted(file.name for file in (tmp_path / "ours").iterdir())
    assert names == sorted(file.name for file in (tmp_path / "theirs").iterdir())
    for name in ("a-patches.csv", "a.geojson", "a-map.tif"):
        assert (tmp_path / "ours" / name).read_bytes() == (tmp_path / "theirs" / name).read_bytes()
    first = json.loads((tmp_path / "ours" / "a.geojson").read_text())["features"][0]
    assert first["geometry"]["coordinates"][0][0] == ([0, 0] if crop else [24, 8])
    shape = tifffile.imread(tmp_path / "ours" / "a-map.tif").shape
    assert shape == ((144, 200) if crop else (160, 240))
    assert omissions(ours, crop=crop) == []


def test_without_the_slide_a_sentence_says_so(tmp_path: Path, pixels: PatchSource) -> None:
    bag = write_features(tmp_path / "a.h5", patches_of(tmp_path / "slide.tif"))
    seen = explained(open_features(bag).on_slide(SlideFinder()))
    notes = omissions(seen)
    assert "its slide was not found: attention is drawn on a canvas" in notes[0]
    assert "--slides" in notes[0]
    written = {path.name for path in write_explanation(tmp_path, seen, stem="a")}
    assert written == {"a-patches.csv", "a-overlay.png", "a.geojson", "a-map.tif"}


class TestAnnotations:
    def test_beside_the_slide_count_from_the_scanned_corner(
        self, features: PatchSource, tmp_path: Path
    ) -> None:
        square = polygon_feature([(0, 0), (10, 0), (10, 10)], name="a")
        write_geojson(tmp_path / "slide.geojson", [square])
        seen, notes = explained(features).annotated()
        assert notes == []
        assert seen.outlines[0].lines[0][:3] == [(24, 8), (34, 8), (34, 18)]

    def test_that_cannot_be_read(self, features: PatchSource, tmp_path: Path) -> None:
        (tmp_path / "slide.xml").write_text("<annotation/>")
        seen, notes = explained(features).annotated()
        assert seen.outlines == ()
        assert "slide.xml: cannot read these annotations" in notes[0]
        with pytest.raises(DataError, match=r"slide.xml: cannot read"):
            explained(features).annotated(tmp_path)

    def test_of_no_file(self, tmp_path: Path) -> None:
        source = open_patches(np.zeros((40, 40), np.uint8), patch_size=20)
        seen = explained(source)
        assert seen.annotated(tmp_path)[0] is seen

    def test_are_drawn_where_they_are(self, tmp_path: Path) -> None:
        square = polygon_feature([(30, 50), (70, 50), (70, 90), (30, 90)], name="a")
        write_geojson(tmp_path / "a.geojson", [square])
        white = np.full((100, 100, 3), 255, np.uint8)
        page = Page(1, 1)
        axes = page.axes(0, 0, 1, 1)
        view = Thumbnail(white, 0.5, (10.0, 10.0))  # shows 10 to 210
        draw_thumbnail(axes, view)
        draw_outlines(axes, view, read_outlines(tmp_path / "a.geojson"))
        page.save(tmp_path / "page.png")
        with Image.open(tmp_path / "page.png") as picture:
            dark = np.argwhere(np.asarray(picture.convert("L"))[5:-5, 5:-5] < 60) + 5
        scale = DPI / 100  # pixels of the page per pixel of the thumbnail
        low, high = dark.min(axis=0) / scale, dark.max(axis=0) / scale
        np.testing.assert_allclose(low, (20, 10), atol=1.5)  # y, x
        np.testing.assert_allclose(high, (40, 30), atol=1.5)


class TestCloseup:
    def test_shows_the_region_with_the_most_attention(self, tmp_path: Path) -> None:
        dark = np.full((900, 1200), 40, np.uint8)
        dark[600:640, 800:840] = 250
        source = open_patches(dark, patch_size=20)
        seen = explained(source)
        found = int(np.flatnonzero((source.coords == (800, 600)).all(axis=1))[0])
        attention = np.full(len(source), 1e-6)
        attention[found] = 1
        page = closeup_page(replace(seen, all_attention={"grade": attention}))
        assert page is not None
        page.save(tmp_path / "page.png")
        _, region, *_ = page.figure.axes
        view = region.images[0].get_array()
        assert view is not None
        bright = np.argwhere(np.asarray(view)[..., 0] > 200)
        assert len(bright) == 40 * 40
        centre = np.array(np.asarray(view).shape[:2]) / 2
        np.testing.assert_allclose(bright.min(axis=0), centre - 10, atol=1)

    def test_small_images_need_none(self, pixels: PatchSource) -> None:
        assert closeup_page(explained(pixels)) is None
