"""Objects of a table: boxes of a CSV, and a folder of annotation files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ips.data.objects import AnnotationFolder, Boxes, open_objects
from ips.data.regions import Region
from ips.errors import DataError

HEADER = "path,left,top,right,bottom"


def boxes(folder: Path, *lines: str, header: str = HEADER, exclude: tuple[str, ...] = ()) -> Boxes:
    table = folder / "boxes.csv"
    table.write_text("\n".join([header, *lines]))
    images = [folder / "a.png", folder / "b.png"]
    return Boxes(
        table, images=images, exclude=exclude, root=folder, path="path", tasks=["limit", "kinds"]
    )


def corners(regions: list[Region] | None) -> list[list[float]]:
    assert regions is not None
    return [[*region.bounds[0], *region.bounds[1]] for region in regions]


def test_boxes_belong_to_their_image(tmp_path: Path) -> None:
    found = boxes(tmp_path, "a.png,1,2,3.5,4", "a.png,5,5,6,6")
    assert not found.errors
    for task in ("limit", "kinds"):
        assert corners(found.regions(tmp_path / "a.png", task)) == [[1, 2, 3.5, 4], [5, 5, 6, 6]]
        assert found.regions(tmp_path / "b.png", task) == []


def test_an_object_without_an_entry_does_not_matter_for_a_task(tmp_path: Path) -> None:
    lines = "a.png,1,2,3,4,70", "a.png,5,5,6,6,"
    found = boxes(tmp_path, *lines, header=f"{HEADER},limit")
    assert corners(found.regions(tmp_path / "a.png", "limit")) == [[1, 2, 3, 4]]
    assert len(corners(found.regions(tmp_path / "a.png", "kinds"))) == 2


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("a.png,3,2,3,4", "the box 3, 2, 3, 4 is empty"),
        ("a.png,1,5,3,4", "the box 1, 5, 3, 4 is empty"),
        ("a.png,-1,2,3,4", "the box -1, 2, 3, 4 is not inside the image"),
        ("a.png,one,2,3,4", "left, top, right and bottom are one, 2, 3, 4: give four numbers"),
        ("a.png,1,2,nan,4", "left, top, right and bottom are 1, 2, nan, 4: give four numbers"),
        ("a.png,1,2,,4", "left, top, right and bottom are 1, 2, , 4: give four numbers"),
    ],
)
def test_every_mistake_is_named_with_its_line(tmp_path: Path, line: str, problem: str) -> None:
    found = boxes(tmp_path, "a.png,1,2,3,4", line)
    (error,) = found.errors
    assert str(error).startswith(f"{tmp_path / 'boxes.csv'}, line 3: {problem}")
    assert len(corners(found.regions(tmp_path / "a.png", "limit"))) == 1


def test_boxes_of_images_that_are_left_out_are_no_mistake(tmp_path: Path) -> None:
    assert not boxes(tmp_path, "c.png,1,2,3,4", exclude=("c.png",)).errors


def test_boxes_of_images_that_the_table_lacks_are_ignored_and_counted(tmp_path: Path) -> None:
    found = boxes(tmp_path, "a.png,1,2,3,4", "c.png,1,2,3,4", "d.png,one,2,3,4")
    assert not found.errors
    (note,) = found.notes
    assert "2 boxes are ignored" in note
    assert note.endswith("such as 'c.png' in line 3")
    assert len(corners(found.regions(tmp_path / "a.png", "limit"))) == 1


def test_boxes_without_an_image_of_the_table_are_one_mistake(tmp_path: Path) -> None:
    (error,) = boxes(tmp_path, "x/a.png,1,2,3,4", "x/b.png,1,2,3,4").errors
    assert "none of its images, such as 'x/a.png', is in the table of images: write" in str(error)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"boxes\.csv: no column 'right' among path, left, top"):
        boxes(tmp_path, "a.png,1,2,4", header="path,left,top,bottom")


def test_a_box_outside_of_its_image_is_named(tmp_path: Path) -> None:
    found = boxes(tmp_path, "a.png,1,2,30,4", "a.png,1,2,3,40", "b.png,1,2,30,40")
    assert found.problems(tmp_path / "a.png", (30, 40)) == []
    (wide,) = found.problems(tmp_path / "a.png", (29, 40))
    assert "line 2: the box 1, 2, 30, 4 is not inside the image of 29 x 40 px" in str(wide)
    (high,) = found.problems(tmp_path / "a.png", (30, 39))
    assert "line 3: the box 1, 2, 3, 40 is not inside" in str(high)
    assert found.problems(tmp_path / "a.png", None) == []  # features


def asap(path: Path) -> None:
    line = "".join(
        f'<Coordinate Order="{n}" X="{x}" Y="{y}"/>'
        for n, (x, y) in enumerate([(0, 0), (8, 0), (8, 8)])
    )
    path.write_text(
        '<ASAP_Annotations><Annotations><Annotation Name="A" Type="Polygon" PartOfGroup="Tumor">'
        f"<Coordinates>{line}</Coordinates></Annotation></Annotations></ASAP_Annotations>"
    )


def geojson(path: Path) -> None:
    rings = [[[0, 0], [9, 0], [9, 9], [0, 0]]]
    path.write_text(json.dumps({"type": "Polygon", "coordinates": rings}))


def test_annotation_files_are_found_by_the_name_of_the_image(tmp_path: Path) -> None:
    geojson(tmp_path / "a.geojson")
    asap(tmp_path / "Test_001.xml")
    asap(tmp_path / "Test_114.xml")  # of CAMELYON16, whose annotation is incomplete
    found = AnnotationFolder(tmp_path, origin=lambda image: (100, 0))
    assert corners(found.regions(Path("slides/a.tif"), "tumor")) == [[100, 0, 109, 9]]
    assert corners(found.regions(Path("features/test_001.h5"), "tumor")) == [[0, 0, 8, 8]]
    assert corners(found.regions(Path("all.h5::test_001"), "tumor")) == [[0, 0, 8, 8]]
    assert found.regions(Path("b.tif"), "tumor") == []
    assert found.regions(Path("test_114.h5"), "tumor") is None


def test_a_damaged_annotation_file_is_a_problem_of_its_image(tmp_path: Path) -> None:
    (tmp_path / "a.geojson").write_text("{")
    found = AnnotationFolder(tmp_path, origin=lambda image: (0, 0))
    (error,) = found.problems(Path("a.png"), None)
    assert "a.geojson: cannot read these annotations" in str(error)
    assert found.problems(Path("b.png"), None) == []


def test_a_file_is_a_table_and_a_folder_has_annotations(tmp_path: Path) -> None:
    def opened(place: Path) -> object:
        return open_objects(
            place,
            images=[],
            exclude=(),
            root=tmp_path,
            path="path",
            tasks=[],
            origin=lambda image: (0, 0),
        )

    with pytest.raises(DataError, match=r"no annotation file \(\.geojson, \.json, \.xml\)"):
        opened(tmp_path)
    with pytest.raises(DataError, match=r"none\.csv: no such table"):
        opened(tmp_path / "none.csv")
    geojson(tmp_path / "a.geojson")
    assert isinstance(opened(tmp_path), AnnotationFolder)
