"""Which images are one bag, and which row of a table an image gets its label from."""

from __future__ import annotations

from pathlib import Path

import pytest

from ips.config import Config
from ips.config_io import parse_config
from ips.errors import DataError
from ips.inputs import bag_images, find_bags, read_labels


def labels(tmp_path: Path, rows: list[str], images: list[str]) -> dict[str, int]:
    """The label of each image that gets one from a table of these rows."""
    table = tmp_path / "labels.csv"
    table.write_text("\n".join(["path,grade", *rows]))
    config = parse_config({"tasks": {"grade": {"names": ["low", "high"]}}}, source="test")
    paths = [str(tmp_path / image) for image in images]
    found = read_labels(table, {path: [path] for path in paths}, config)
    return {
        image: int(found[path]["grade"])
        for image, path in zip(images, paths, strict=True)
        if found[path]
    }


def test_names_with_spaces_are_not_divided(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("path,signs\n1.png,no entry\n2.png,stop|no entry\n")
    task = {"kind": "multilabel", "classes": 2, "names": ["no entry", "stop"]}
    config = parse_config({"tasks": {"signs": task}}, source="test")
    for images in (["1.png"], ["1.png", "2.png"]):
        found = read_labels(tmp_path / "labels.csv", {image: [image] for image in images}, config)
        values = [found[image]["signs"].tolist() for image in images]
        assert values == [[1, 0], [1, 1]][: len(images)]


def test_by_path_or_else_by_name(tmp_path: Path) -> None:
    rows = ["a/1.png,low", "2.png,high"]
    assert labels(tmp_path, rows, ["a/1.png", "b/2.png"]) == {"a/1.png": 0, "b/2.png": 1}


def test_no_label_of_another_image_of_the_same_name(tmp_path: Path) -> None:
    images = ["a/1.png", "b/1.png", "a/2.png"]
    assert labels(tmp_path, ["a/1.png,low", "x/2.png,high"], images) == {"a/1.png": 0, "a/2.png": 1}
    assert labels(tmp_path, ["1.png,low", "2.png,high"], images) == {"a/2.png": 1}


def patients(tmp_path: Path, *, bags: str = "group", **data: str) -> Config:
    values = {"kind": "table", "csv": str(tmp_path / "train.csv"), "bags": bags, **data}
    tasks = {"grade": {"names": ["low", "high"]}}
    return parse_config({"data": values, "tasks": tasks}, source="test")


def touch(tmp_path: Path, *names: str) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()


@pytest.mark.parametrize("bags", ["group", "average"])
def test_the_groups_of_a_table_are_bags(tmp_path: Path, bags: str) -> None:
    table = tmp_path / "t.csv"
    table.write_text("path,patient\n1.png,a\n2.png,b\n3.png,a\n")
    found = find_bags([table, tmp_path / "2.png"], patients(tmp_path, bags=bags))
    files = {"a": ["1.png", "3.png"], "b": ["2.png"]}
    assert found == {name: [str(tmp_path / file) for file in some] for name, some in files.items()}


@pytest.mark.parametrize("data", [{"bags": "image"}, {"group": "none"}])
def test_files_of_a_table_without_groups_are_bags(tmp_path: Path, data: dict[str, str]) -> None:
    table = tmp_path / "t.csv"
    table.write_text("path,patient\n1.png,a\n3.png,a\n")
    files = [str(tmp_path / "1.png"), str(tmp_path / "3.png")]
    assert find_bags([table], patients(tmp_path, **data)) == {file: [file] for file in files}


def test_the_folders_inside_a_folder_are_patients(tmp_path: Path) -> None:
    touch(tmp_path, "all/a/1.png", "all/a/2.png", "all/b/1.png", "flat/1.png", "flat/2.png")
    config = patients(tmp_path)
    found = find_bags([tmp_path / "all"], config)
    assert {name: len(files) for name, files in found.items()} == {"a": 2, "b": 1}
    flat = find_bags([tmp_path / "flat"], config)
    assert flat == {name: [name] for name in flat}
    assert len(flat) == 2
    images = find_bags([tmp_path / "all"], patients(tmp_path, bags="image"))
    assert images == {name: [name] for name in images}


def test_one_file_is_predicted_as_such(tmp_path: Path) -> None:
    assert bag_images("a.png", ["a.png"]) == "a.png"
    assert bag_images("p1", ["a.png"]) == ["a.png"]


def test_the_label_of_a_patient_is_that_of_its_images(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("path,patient,grade\n1.png,a,high\n2.png,b,low\n3.png,a,\n")
    config = patients(tmp_path)
    found = read_labels(table, find_bags([table], config), config)
    assert {name: int(labels["grade"]) for name, labels in found.items()} == {"a": 1, "b": 0}
    table.write_text("path,patient,grade\n1.png,a,high\n2.png,b,low\n3.png,a,low\n")
    with pytest.raises(DataError, match=r"1 of 2 patients .*'grade' \(a\)"):
        read_labels(table, find_bags([table], config), config)
