"""Labels of a table as tensors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ips.config import TaskConfig
from ips.data.labels import encode_labels
from ips.data.table import Row
from ips.errors import DataError


def task(kind: str, classes: int, *, names: list[str] | None = None) -> TaskConfig:
    return TaskConfig.model_validate({"kind": kind, "classes": classes, "names": names})


def rows_of(task: str, cells: list[str]) -> list[Row]:
    return [Row(Path(f"{i}.tif"), {task: cell}, None) for i, cell in enumerate(cells)]


def test_numbers_are_kept() -> None:
    encoded = encode_labels(rows_of("y", ["2", "0", "2"]), {"y": task("multiclass", 4)})
    values = [labels["y"] for labels in encoded.labels]
    assert [v.item() for v in values] == [2, 0, 2]
    assert all(v.dtype == torch.int64 and v.shape == () for v in values)
    assert encoded.names == {"y": ["0", "1", "2", "3"]}


def test_names_are_numbered_alphabetically() -> None:
    tasks = {"y": task("multiclass", 3)}
    encoded = encode_labels(rows_of("y", ["low", "high", "mid"]), tasks)
    assert [labels["y"].item() for labels in encoded.labels] == [1, 0, 2]
    assert encoded.names == {"y": ["high", "low", "mid"]}
    tasks = {"y": task("multiclass", 3, names=encoded.names["y"])}
    again = encode_labels(rows_of("y", ["mid"]), tasks)
    assert again.labels[0]["y"].item() == 2
    assert again.names == encoded.names


def test_binary() -> None:
    cells = ["0", "1", "No", "YES", "false", "True", "neg", "positive"]
    encoded = encode_labels(rows_of("y", cells), {"y": task("binary", 2)})
    values = torch.stack([labels["y"] for labels in encoded.labels])
    assert values.tolist() == [0, 1] * 4
    assert values.dtype == torch.float32


@pytest.mark.parametrize(
    "cells",
    [["0 2", "", "1"], ["0;2", "", "1"], ["0 | 2", "", "1;"], ["a;b c", "", "a a"]],
)
def test_multilabel(cells: list[str]) -> None:
    encoded = encode_labels(rows_of("y", cells), {"y": task("multilabel", 3)})
    values = torch.stack([labels["y"] for labels in encoded.labels])
    assert values.dtype == torch.float32
    if cells[0] == "a;b c":
        assert encoded.names["y"] == ["a", "a a", "b c"]
    assert values.tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]


def test_several_tasks() -> None:
    rows = [Row(Path("a.tif"), {"x": "1", "y": "b"}, None)]
    tasks = {"x": task("binary", 2), "y": task("multilabel", 1)}
    assert list(encode_labels(rows, tasks).labels[0]) == ["x", "y"]


@pytest.mark.parametrize(
    ("cells", "spec", "message"),
    [
        (["0", "", ""], task("multiclass", 2), r"2 of 3 rows have no label 'y', .*1\.tif"),
        (["", "1"], task("binary", 2), "1 of 2 rows have no label"),
        (["a", "b", "c"], task("multiclass", 2), r"classes=2 .* 3 different labels \(a, b, c"),
        (["a", "a"], task("multiclass", 2), "classes=2 .* 1 different"),
        (["1", "2", "3"], task("multiclass", 3), r"2\.tif: label '3' of task 'y' is not one"),
        (["0;3"], task("multilabel", 3), r"0\.tif: label '3'"),
        (["tumor"], task("binary", 2), "'tumor' of the binary task 'y', expected 0 or 1"),
    ],
)
def test_wrong_labels_are_refused(cells: list[str], spec: TaskConfig, message: str) -> None:
    with pytest.raises(DataError, match=message):
        encode_labels(rows_of("y", cells), {"y": spec})


def test_an_unknown_class_name_is_refused() -> None:
    with pytest.raises(DataError, match=r"label 'c' .* 2 classes \(a, b\)"):
        encode_labels(rows_of("y", ["c"]), {"y": task("multiclass", 2, names=["a", "b"])})
