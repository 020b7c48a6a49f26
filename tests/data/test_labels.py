"""Labels of a table as tensors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ips.config import TaskConfig
from ips.data.labels import encode_labels, similar_labels
from ips.data.table import Row
from ips.errors import DataError
from ips.tasks import build_tasks


def task(
    kind: str, classes: int, *, names: list[str] | None = None, positive: str | None = None
) -> TaskConfig:
    values = {"kind": kind, "classes": classes, "names": names, "positive": positive}
    return TaskConfig.model_validate(values)


def numbers(cells: list[str], spec: TaskConfig) -> list[float]:
    return [row["y"].item() for row in encode_labels(rows_of("y", cells), {"y": spec}).labels]


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


def test_a_label_may_be_missing_if_the_row_has_another() -> None:
    rows = [Row(Path(f"{x}{y}.tif"), {"x": x, "y": y}, None) for x, y in ("1-", "-2", "02")]
    cells = [{task: text.strip("-") for task, text in row.labels.items()} for row in rows]
    rows = [replace(row, labels=labels) for row, labels in zip(rows, cells, strict=True)]
    tasks = {"x": task("binary", 2), "y": task("multiclass", 3)}
    labels = encode_labels(rows, tasks).labels
    for name, spec in build_tasks(tasks).items():
        known = spec.known(torch.stack([row[name] for row in labels]))
        assert known.tolist() == [bool(row[name]) for row in cells]
    rows.append(Row(Path("none.tif"), {"x": "", "y": ""}, None))
    with pytest.raises(DataError, match=r"1 of 4 rows have no label 'x' or 'y', .*none\.tif"):
        encode_labels(rows, tasks)


@pytest.mark.parametrize(
    ("cells", "spec", "message"),
    [
        (["0", "", ""], task("multiclass", 2), r"2 of 3 rows have no label 'y', .*1\.tif"),
        (["", "1"], task("binary", 2), "1 of 2 rows have no label"),
        (["a", "b", "c"], task("multiclass", 2), r"classes=2 .* 3 different labels \(a, b, c"),
        (["a", "a"], task("multiclass", 2), "classes=2 .* 1 different"),
        (["1", "2", "3"], task("multiclass", 3), r"2\.tif: label '3' of task 'y' is not one"),
        (["0;3"], task("multilabel", 3), r"0\.tif: label '3'"),
        (["tumor"], task("binary", 2), r"binary task 'y' has 1 different labels \(tumor\)"),
        (
            ["ok", "ok", "defect", "ok", "defect", "defekt"],
            task("binary", 2),
            r"5\.tif: label 'defekt' of task 'y', did you mean 'defect'\? .* has 3 different",
        ),
        (
            ["low"] * 3 + ["high"] * 2 + ["Lo"],
            task("multiclass", 2),
            r"5\.tif: label 'Lo' of .*low",
        ),
    ],
)
def test_wrong_labels_are_refused(cells: list[str], spec: TaskConfig, message: str) -> None:
    with pytest.raises(DataError, match=message):
        encode_labels(rows_of("y", cells), {"y": spec})


@pytest.mark.parametrize(
    ("label", "usual"),
    [
        *[("okk", "ok"), ("hgih", "high"), ("defcet", "defect"), ("defect ", "defect")],
        *[("non-small", "non small"), ("grade_hihg", "grade_high"), ("Ok", "ok")],
    ],
)
def test_a_rare_label_one_letter_off_may_be_a_typing_error(label: str, usual: str) -> None:
    assert similar_labels({usual: 30, label: 2}) == {label: usual}


@pytest.mark.parametrize(
    ("label", "usual"),
    [
        *[("type A", "type B"), ("TypeA", "TypeB"), ("type_a", "type_b"), ("pT1a", "pT1b")],
        *[("grade I", "grade II"), ("grade iv", "grade vi"), ("stage", "stage I")],
        *[("grade 1", "grade 2"), ("tumor2", "tumor"), ("vitamin B12", "vitamin B6")],
        *[("atypical", "typical"), ("abnormal", "normal"), ("female", "male"), ("cat", "car")],
    ],
)
def test_a_rare_label_may_be_a_class_of_its_own(label: str, usual: str) -> None:
    assert similar_labels({usual: 30, label: 2}) == {}


def test_an_unknown_class_name_is_refused() -> None:
    with pytest.raises(DataError, match=r"label 'c' .* 2 classes \(a, b\): correct the label"):
        encode_labels(rows_of("y", ["c"]), {"y": task("multiclass", 2, names=["a", "b"])})


def test_an_unknown_label_is_named_with_its_line_and_the_nearest_label() -> None:
    rows = [Row(Path("a.png"), {"y": "tumr"}, None, line=17)]
    spec = task("binary", 2, names=["normal", "tumor"])
    with pytest.raises(DataError) as caught:
        encode_labels(rows, {"y": spec}, source="labels.csv")
    assert str(caught.value) == (
        "labels.csv: line 17, a.png: label 'tumr' of task 'y' is not one of its 2 classes "
        "(normal, tumor): did you mean 'tumor'?"
    )


@pytest.mark.parametrize("kind", ["binary", "multiclass"])
def test_labels_are_names_or_numbers_of_the_config(kind: str) -> None:
    spec = task(kind, 2, names=["tumor", "normal"])  # not in alphabetical order
    assert numbers(["tumor", "normal", "Tumor", "0", "1"], spec) == [0, 1, 0, 0, 1]


def test_a_number_that_is_a_name_is_a_name() -> None:
    assert numbers(["2", "1"], task("multiclass", 2, names=["1", "2"])) == [1, 0]
    with pytest.raises(DataError, match="label '0'"):
        numbers(["0"], task("multiclass", 2, names=["1", "2"]))


@pytest.mark.parametrize("names", [["0", "1"], ["no", "yes"], ["a", "b"]])
def test_words_for_the_classes_of_a_binary_task(names: list[str]) -> None:
    cells = ["No", "pos", "1", "false"]
    assert numbers(cells, task("binary", 2, names=names)) == [0, 1, 1, 0]
    assert numbers(["yes", "1", "0"], task("binary", 2, names=["yes", "no"])) == [0, 0, 1]


def test_two_names_of_a_binary_task_need_not_be_in_the_config() -> None:
    encoded = encode_labels(rows_of("y", ["ok", "defect"]), {"y": task("binary", 2)})
    assert encoded.names == {"y": ["defect", "ok"]}


@pytest.mark.parametrize("kind", ["binary", "multiclass"])
@pytest.mark.parametrize("names", [None, ["defect", "ok"]])
def test_the_positive_class_comes_last(kind: str, names: list[str] | None) -> None:
    spec = task(kind, 2, names=names, positive="defect")
    encoded = encode_labels(rows_of("y", ["ok", "defect"]), {"y": spec})
    assert encoded.names == {"y": ["ok", "defect"]}
    assert [labels["y"].item() for labels in encoded.labels] == [0, 1]
    assert build_tasks({"y": spec})["y"].class_names == (["ok", "defect"] if names else ["0", "1"])
    # A run stores the names, and must number the labels in the same way again.
    stored = spec.model_copy(update={"names": encoded.names["y"]})
    assert numbers(["ok", "defect"], stored) == [0, 1]
    assert build_tasks({"y": stored})["y"].class_names == ["ok", "defect"]


def test_numbers_stay_those_of_the_config_with_another_positive_class() -> None:
    spec = task("binary", 2, names=["tumor", "normal"], positive="tumor")
    assert numbers(["0", "tumor", "1", "normal"], spec) == [1, 1, 0, 0]
    assert numbers(["0", "1"], task("binary", 2, positive="0")) == [1, 0]


def test_a_positive_class_that_does_not_exist_is_refused() -> None:
    with pytest.raises(DataError, match=r"tasks\.y\.positive='defct' .*did you mean 'defect'\?"):
        numbers(["ok", "defect"], task("binary", 2, positive="defct"))
    with pytest.raises(ValueError, match="positive='b' is not one of the names a, c"):
        task("binary", 2, names=["a", "c"], positive="b")
    with pytest.raises(ValueError, match="positive='a' is for tasks of two classes"):
        task("multiclass", 3, positive="a")
