"""Reading outlines from GeoJSON and ASAP XML, and writing GeoJSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ips.annotations import Outline, parse_xml, polygon_feature, read_outlines, write_geojson
from ips.errors import DataError

ASAP = """<?xml version="1.0"?>
<ASAP_Annotations><Annotations>
 <Annotation Name="A 0" Type="Polygon" PartOfGroup="Tumor" Color="#F4FA58"><Coordinates>
  <Coordinate Order="1" X="10" Y="0"/><Coordinate Order="0" X="0" Y="0"/>
  <Coordinate Order="2" X="10" Y="10.5"/></Coordinates></Annotation>
 <Annotation Name="dots" Type="PointSet" PartOfGroup="None" Color="red"><Coordinates>
  <Coordinate Order="0" X="1" Y="2"/><Coordinate Order="1" X="3" Y="4"/></Coordinates></Annotation>
</Annotations><AnnotationGroups><Group Name="Tumor" Color="#00ff00"/></AnnotationGroups>
</ASAP_Annotations>"""


def test_asap_counts_from_the_corner_of_the_image(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text(ASAP)
    tumour, one, two = read_outlines(tmp_path / "a.xml", origin=(20, 30))
    assert tumour.lines == [[(0, 0), (10, 0), (10, 10.5)]]
    assert (tumour.kind, tumour.name, tumour.group) == ("polygon", "A 0", "Tumor")
    assert tumour.colour == "#f4fa58"
    assert [o.lines for o in (one, two)] == [[[(1, 2)]], [[(3, 4)]]]
    assert (one.kind, one.name, one.group, one.colour) == ("point", "dots", "", None)


def test_asap_shapes_without_a_colour_have_that_of_their_group(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text(ASAP.replace(' Color="#F4FA58"', ""))
    assert read_outlines(tmp_path / "a.xml")[0].colour == "#00ff00"


def test_geojson_counts_from_the_origin(tmp_path: Path) -> None:
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
    first, second, point, line = read_outlines(tmp_path / "a.geojson", origin=(20, 30))
    assert first.lines == [[(20, 30), (24, 30), (24, 34), (20, 30)]]
    assert (first.group, first.colour, len(second.lines)) == ("Tumor", "#c800ff", 2)
    assert (point.kind, point.lines, point.name) == ("point", [[(21, 32)]], "")
    assert (line.kind, line.lines) == ("line", [[(20, 30), (21, 31)]])


@pytest.mark.parametrize("colour", [[1, 2, 255], -16776449, "#0102FF"])
def test_colours_of_every_version_of_qupath(tmp_path: Path, colour: object) -> None:
    feature = polygon_feature([(0, 0), (1, 0), (1, 1)], name="a")
    feature["properties"]["classification"]["color"] = colour
    write_geojson(tmp_path / "a.geojson", [feature])
    (outline,) = read_outlines(tmp_path / "a.geojson")
    assert outline.colour == ("#0102ff" if colour != -16776449 else "#0002ff")


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
        ("a.xml", ASAP.replace('X="10"', 'X="nan"')),
        ("a.xml", ASAP.replace('Y="10.5"', 'Y="-inf"')),
        ("a.xml", ASAP.replace('Order="1"', 'Order="nan"')),
        ("a.xml", ASAP.replace("ASAP_Annotations", "Annotations_ASAP")),
        ("a.geojson", '{"type": "Point", "coordinates": [1e999, 1]}'),
        ("a.geojson", '{"type": "Topology", "features": []}'),
    ],
)
def test_unreadable_annotations_are_one_sentence(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=r"^a\.\w+: cannot read these annotations \(.*\): export"):
        read_outlines(tmp_path / name)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^a\.xml: cannot .* \(no such file.*\): check the path"):
        read_outlines(tmp_path / "a.xml")


def test_huge_files_are_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ips.annotations._MAX_BYTES", 100)
    (tmp_path / "a.xml").write_text(ASAP)
    with pytest.raises(DataError, match="larger than"):
        read_outlines(tmp_path / "a.xml")


def test_xml_with_a_document_type_is_refused() -> None:
    assert parse_xml("<a><b/></a>")[0].tag == "b"
    with pytest.raises(ValueError, match="document type"):
        parse_xml('<!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>')


def test_tiles_are_skipped(tmp_path: Path) -> None:
    point = '"geometry": {"type": "Point", "coordinates": [1, 2]}'
    (tmp_path / "a.geojson").write_text(
        f'[{{"properties": {{"objectType": "tile"}}, {point}}}, '
        f'{{"properties": {{"objectType": "annotation", "name": "drawn"}}, {point}}}]'
    )
    assert [outline.name for outline in read_outlines(tmp_path / "a.geojson")] == ["drawn"]


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    path, corners = tmp_path / "a.geojson", [(0.0, 0.0), (8.5, 0.0), (8.5, 4.0)]
    write_geojson(path, (polygon_feature(corners, name=name, note=1) for name in "ab"))
    first, second = read_outlines(path)
    assert first == Outline("polygon", [[*corners, corners[0]]], "", "a", "#c80000")
    assert second.group == "b"
    assert [f["properties"]["note"] for f in json.loads(path.read_text())["features"]] == [1, 1]
    write_geojson(path, [])
    assert read_outlines(path) == []


def test_a_failing_writer_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.geojson"
    path.write_text("old")
    with pytest.raises(ValueError, match="JSON"):
        write_geojson(path, [{"x": float("nan")}])
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
