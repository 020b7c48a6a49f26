"""Finding the annotations of an image, and preparing them for the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from ips.annotations import find_annotations, polygon_feature, write_geojson
from ips.errors import DataError
from ips.images import ArrayImage
from ips.viewer.images import annotation_shapes
from tests.test_annotations import ASAP
from tests.viewer.viewer_files import picture


@pytest.fixture
def margined() -> ArrayImage:
    """A slide of which only a part was scanned."""
    image = ArrayImage(picture(100, 100))
    image.bounds = (20, 30, 50, 50)
    return image


def test_asap_counts_from_the_corner_of_the_file(tmp_path: Path, margined: ArrayImage) -> None:
    (tmp_path / "a.xml").write_text(ASAP)
    tumour, one, _ = annotation_shapes(tmp_path / "a.xml", margined)
    assert tumour["lines"] == [[(0, 0), (10, 0), (10, 10.5)]]
    assert (tumour["kind"], tumour["name"], tumour["colour"]) == ("polygon", "Tumor", "#f4fa58")
    assert (one["kind"], one["name"]) == ("point", "dots")
    assert one["colour"] == "#ffa90e"  # the default


def test_qupath_counts_from_where_the_scan_begins(tmp_path: Path, margined: ArrayImage) -> None:
    write_geojson(tmp_path / "a.geojson", [polygon_feature([(0, 0), (4, 0), (4, 4)], name="a")])
    (shape,) = annotation_shapes(tmp_path / "a.geojson", margined)
    assert shape["lines"] == [[(20, 30), (24, 30), (24, 34), (20, 30)]]


def test_too_many_points_are_refused(
    tmp_path: Path, margined: ArrayImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ips.viewer.images._MAX_POINTS", 4)
    (tmp_path / "a.xml").write_text(ASAP)
    with pytest.raises(DataError, match=r"^a\.xml: more than 4 points"):
        annotation_shapes(tmp_path / "a.xml", margined)


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
