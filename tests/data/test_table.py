"""Tables of a person's own data: what is accepted, what is refused, and how labels are numbered."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from ips.data.split import stratified_split
from ips.data.table import Row, TableData, encode_labels, read_table
from ips.errors import DataError
from ips.patches.source import MemoryPatches


@dataclass(frozen=True)
class Task:
    kind: str
    classes: int


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.tif", "b.tif", "c.tif", "all.h5"):
        (tmp_path / name).touch()
    return tmp_path


def write(folder: Path, text: str, *, encoding: str = "utf-8") -> Path:
    path = folder / "table.csv"
    path.write_bytes(text.encode(encoding))
    return path


def rows_of(task: str, cells: list[str]) -> list[Row]:
    return [Row(Path(f"{i}.tif"), {task: cell}, None) for i, cell in enumerate(cells)]


class TestReadTable:
    @pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
    @pytest.mark.parametrize("separator", [",", ";", "\t"])
    @pytest.mark.parametrize("newline", ["\n", "\r\n"])
    def test_kinds_of_csv(self, folder: Path, separator: str, newline: str, encoding: str) -> None:
        lines = ["path,grade, Split", "a.tif,high,train", "", "b.tif, low ,Test", ",,"]
        text = newline.join(lines).replace(",", separator)
        assert read_table(write(folder, text, encoding=encoding), tasks=["grade"]) == [
            Row(folder / "a.tif", {"grade": "high"}, "train"),
            Row(folder / "b.tif", {"grade": "low"}, "test"),
        ]

    def test_root_column_and_no_split(self, folder: Path) -> None:
        (folder / "tables").mkdir()
        table = write(folder / "tables", "slide,x,y\na.tif,1,\n")
        (row,) = read_table(table, root=folder, path="slide", tasks=["x", "y"])
        assert row == Row(folder / "a.tif", {"x": "1", "y": ""}, None)

    def test_a_task_may_be_called_split(self, folder: Path) -> None:
        table = write(folder, "path,Split\na.tif,wood\n")
        assert read_table(table, tasks=["Split"]) == [
            Row(folder / "a.tif", {"Split": "wood"}, None)
        ]

    def test_slides_of_one_feature_file(self, folder: Path) -> None:
        table = write(folder, "path,y\nall.h5::s1,0\nall.h5::s2,1\n")
        assert [row.path.name for row in read_table(table, tasks=["y"])] == [
            "all.h5::s1",
            "all.h5::s2",
        ]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "no images in it"),
            ("path,grade\n", "no images in it"),
            ("path,Grade\na.tif,1\n", "no column 'grade' among path, Grade, did you mean 'Grade'"),
            ("file,grade\na.tif,1\n", "no column 'path' among file, grade"),
            ("path,grade,grade\na.tif,1,2\n", "two columns are called 'grade'"),
            ("path,grade\na.tif,1\n,1\n", "line 3: no file in column 'path'"),
            ("path,grade\na.tif,1\nb.tif,2\na.tif,1\n", "lines 2 and 4: both name a.tif"),
            ("path,grade,split\na.tif,1,dev\n", "line 2: split 'dev', expected train or test"),
            ("path,grade,split\na.tif,1,\n", "split '', expected"),
            ("path,grade,Split\na.tif,1,dev\n", "line 2: split 'dev', expected train or test"),
            ("path,grade,split,Split\na.tif,1,,\n", "two columns are called split and Split"),
            ("path,grade\na.tif,1,2\n", "line 2: 3 cells under 2 columns"),
            ("path,grade\na.tif\n", "line 2: 1 cells under 2 columns"),
            ('path,grade\na.tif,"1\n', "not a readable CSV"),
            ("path,grade\nx.tif,1\na.tif,1\ny.tif,1\n", r"2 of 3 files.*x\.tif.*y\.tif.*set root"),
        ],
    )
    def test_bad_table(self, folder: Path, text: str, message: str) -> None:
        with pytest.raises(DataError, match=rf"table\.csv.*{message}"):
            read_table(write(folder, text), tasks=["grade"])

    def test_missing_and_wrongly_encoded(self, folder: Path) -> None:
        with pytest.raises(DataError, match=r"none\.csv: no such table"):
            read_table(folder / "none.csv", tasks=[])
        with pytest.raises(DataError, match="save it as UTF-8"):
            read_table(write(folder, "path\nä.tif", encoding="utf-16"), tasks=[])


class TestEncodeLabels:
    def test_numbers_stay(self) -> None:
        encoded = encode_labels(rows_of("y", ["2", "0", "2"]), {"y": Task("multiclass", 4)})
        values = [labels["y"] for labels in encoded.labels]
        assert [v.item() for v in values] == [2, 0, 2]
        assert all(v.dtype == torch.int64 and v.shape == () for v in values)
        assert encoded.names == {"y": ["0", "1", "2", "3"]}

    def test_names_are_numbered_alphabetically(self) -> None:
        tasks = {"y": Task("multiclass", 3)}
        encoded = encode_labels(rows_of("y", ["low", "high", "mid"]), tasks)
        assert [labels["y"].item() for labels in encoded.labels] == [1, 0, 2]
        assert encoded.names == {"y": ["high", "low", "mid"]}
        again = encode_labels(rows_of("y", ["mid"]), tasks, names=encoded.names)
        assert again.labels[0]["y"].item() == 2
        assert again.names == encoded.names

    def test_binary(self) -> None:
        cells = ["0", "1", "No", "YES", "false", "True", "neg", "positive"]
        encoded = encode_labels(rows_of("y", cells), {"y": Task("binary", 2)})
        values = torch.stack([labels["y"] for labels in encoded.labels])
        assert values.tolist() == [0, 1] * 4
        assert values.dtype == torch.float32

    @pytest.mark.parametrize(
        "cells",
        [["0 2", "", "1"], ["0;2", "", "1"], ["0 | 2", "", "1;"], ["a;b c", "", "a a"]],
    )
    def test_multilabel(self, cells: list[str]) -> None:
        encoded = encode_labels(rows_of("y", cells), {"y": Task("multilabel", 3)})
        values = torch.stack([labels["y"] for labels in encoded.labels])
        assert values.dtype == torch.float32
        if cells[0] == "a;b c":
            assert encoded.names["y"] == ["a", "a a", "b c"]
        assert values.tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]

    def test_several_tasks(self) -> None:
        rows = [Row(Path("a.tif"), {"x": "1", "y": "b"}, None)]
        tasks = {"x": Task("binary", 2), "y": Task("multiclass", 1)}
        assert list(encode_labels(rows, tasks).labels[0]) == ["x", "y"]

    @pytest.mark.parametrize(
        ("cells", "task", "message"),
        [
            (["0", "", ""], Task("multiclass", 2), r"2 of 3 rows have no label 'y', .*1\.tif"),
            (["", "1"], Task("binary", 2), "1 of 2 rows have no label"),
            (["a", "b", "c"], Task("multiclass", 2), r"classes=2 .* 3 different labels \(a, b, c"),
            (["a", "a"], Task("multiclass", 2), "classes=2 .* 1 different"),
            (["1", "2", "3"], Task("multiclass", 3), r"2\.tif: label '3' of task 'y' is not one"),
            (["0;3"], Task("multilabel", 3), r"0\.tif: label '3'"),
            (["tumor"], Task("binary", 2), "'tumor' of the binary task 'y', expected 0 or 1"),
        ],
    )
    def test_bad_labels(self, cells: list[str], task: Task, message: str) -> None:
        with pytest.raises(DataError, match=message):
            encode_labels(rows_of("y", cells), {"y": task})

    def test_a_name_the_model_never_saw(self) -> None:
        with pytest.raises(DataError, match=r"label 'c' .* 2 classes \(a, b\)"):
            encode_labels(
                rows_of("y", ["c"]), {"y": Task("multiclass", 2)}, names={"y": ["a", "b"]}
            )


class TestTableData:
    def test_opens_a_file_at_its_turn(self) -> None:
        opened: list[Path] = []

        def open_patches(path: Path) -> MemoryPatches:
            opened.append(path)
            return MemoryPatches(torch.zeros(2, 3), name=path.name)

        rows = rows_of("y", ["0", "1"])
        labels = encode_labels(rows, {"y": Task("binary", 2)}).labels
        data = TableData(rows, labels=labels, open=open_patches)
        assert len(data) == 2
        assert opened == []
        source, label = data[1]
        assert source.name == "1.tif"
        assert label["y"].item() == 1
        assert opened == [Path("1.tif")]
        loader = DataLoader(data, batch_size=None)  # type: ignore[arg-type]
        assert [source.name for source, _ in loader] == ["0.tif", "1.tif"]

    def test_rows_and_labels_differ(self) -> None:
        with pytest.raises(DataError, match="2 rows but 0 labels"):
            TableData(
                rows_of("y", ["0", "1"]), labels=[], open=lambda _: MemoryPatches(torch.zeros(1, 1))
            )


@dataclass(frozen=True)
class Salted:
    """A label whose hash changes with the salt, as that of a string does from run to run."""

    name: str
    salt: int

    def __hash__(self) -> int:
        return hash((self.name, self.salt))


class TestStratifiedSplit:
    @given(
        labels=st.lists(st.sampled_from("abcde"), min_size=6, max_size=80),
        test=st.floats(0.05, 0.95),
        seed=st.integers(0, 1000),
    )
    def test_is_a_partition_of_the_share_with_every_class_on_both_sides(
        self, labels: list[str], test: float, seed: int
    ) -> None:
        train, held_out = stratified_split(labels, test=test, seed=seed)
        assert sorted(train + held_out) == list(range(len(labels)))
        assert (train, held_out) == (sorted(train), sorted(held_out))
        total = min(max(round(len(labels) * test), 1), len(labels) - 1)
        assert len(held_out) == total
        sizes = [labels.count(label) for label in set(labels)]
        strata = [size for size in [*sizes, sizes.count(1)] if size > 1]  # classes of one are one
        room = len(strata) <= total <= sum(strata) - len(strata)
        even = all(1 <= size * test <= size - 1 for size in strata) and sizes.count(1) != 1
        for label in set(labels):
            count = labels.count(label)
            tested = sum(labels[i] == label for i in held_out)
            assert not room or count == 1 or 0 < tested < count
            assert not even or count == 1 or abs(tested - count * test) <= 1
        assert stratified_split(labels, test=test, seed=seed) == (train, held_out)

    def test_the_total_fits_many_small_classes(self) -> None:
        labels = [i // 4 for i in range(40)]
        assert len(stratified_split(labels, test=0.4, seed=0)[1]) == 16

    @pytest.mark.parametrize(
        ("labels", "test", "expected"),
        [
            ([*range(95), *[100] * 5], 0.2, 20),  # one-off combinations, and one class
            ([(i * i % 4, i * 7 % 13 % 4, i * 11 % 17 % 4) for i in range(100)], 0.2, 20),
            ([i // 2 for i in range(100)], 0.1, 10),  # fewer than there are classes
            ([i // 2 for i in range(100)], 0.9, 90),
            ([*"a" * 100, *range(3)], 0.01, 1),
            (list(range(10)), 0.3, 3),
            (["a", "b"], 0.1, 1),
            (["a", "b"], 0.9, 1),
        ],
    )
    def test_the_share_is_the_one_asked_for(
        self, labels: list[Hashable], test: float, expected: int
    ) -> None:
        train, held_out = stratified_split(labels, test=test, seed=0)
        assert (len(train), len(held_out)) == (len(labels) - expected, expected)

    def test_one_image_of_a_class_is_for_training_if_it_is_the_only_such(self) -> None:
        labels = ["rare", *"a" * 10, *"b" * 10]
        assert all(0 in stratified_split(labels, test=0.5, seed=s)[0] for s in range(5))

    def test_larger_classes_are_on_both_sides_where_not_all_can_be(self) -> None:
        labels = [*"a" * 2, *"b" * 9, *"c" * 2, *"d" * 9]
        _, held_out = stratified_split(labels, test=0.1, seed=0)
        assert sorted(labels[i] for i in held_out) == ["b", "d"]

    def test_the_seed_matters(self) -> None:
        labels = ["a", "b"] * 50
        splits = {tuple(stratified_split(labels, test=0.2, seed=s)[1]) for s in range(5)}
        assert len(splits) == 5

    def test_is_the_same_under_any_hash_seed(self) -> None:
        splits = [
            stratified_split(
                [Salted(name, salt) for name in ("x", "y", "zz") * 9], test=0.3, seed=3
            )
            for salt in range(5)
        ]
        assert all(split == splits[0] for split in splits)

    def test_what_cannot_be_split(self) -> None:
        with pytest.raises(DataError, match=r"test=1\.0"):
            stratified_split(["a", "a"], test=1.0, seed=0)
        with pytest.raises(DataError, match="1 images: there is nothing to split"):
            stratified_split(["a"], test=0.5, seed=0)
