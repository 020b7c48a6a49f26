"""Which row of a table an image gets its label from."""

from __future__ import annotations

from pathlib import Path

from ips.config_io import parse_config
from ips.inputs import read_labels


def labels(tmp_path: Path, rows: list[str], images: list[str]) -> dict[str, int]:
    """The label of each image that gets one from a table of these rows."""
    table = tmp_path / "labels.csv"
    table.write_text("\n".join(["path,grade", *rows]))
    config = parse_config({"tasks": {"grade": {"names": ["low", "high"]}}}, source="test")
    paths = [str(tmp_path / image) for image in images]
    found = read_labels(table, paths, config)
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
        found = read_labels(tmp_path / "labels.csv", images, config)
        values = [found[image]["signs"].tolist() for image in images]
        assert values == [[1, 0], [1, 1]][: len(images)]


def test_by_path_or_else_by_name(tmp_path: Path) -> None:
    rows = ["a/1.png,low", "2.png,high"]
    assert labels(tmp_path, rows, ["a/1.png", "b/2.png"]) == {"a/1.png": 0, "b/2.png": 1}


def test_no_label_of_another_image_of_the_same_name(tmp_path: Path) -> None:
    images = ["a/1.png", "b/1.png", "a/2.png"]
    assert labels(tmp_path, ["a/1.png,low", "x/2.png,high"], images) == {"a/1.png": 0, "a/2.png": 1}
    assert labels(tmp_path, ["1.png,low", "2.png,high"], images) == {"a/2.png": 1}
