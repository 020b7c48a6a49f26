"""Which images and labels are found in folders, and in the tables of neighbouring tools."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from ips.advice.write import write_table as write_found
from ips.data.table import read_table
from ips.errors import DataError
from tests.advice.pictures import draw, find, labels, store, write_table


class TestNeighbours:
    def test_clam(self, tmp_path: Path) -> None:
        (tmp_path / "patches").mkdir()
        for number in range(6):
            store(tmp_path / f"h5_files/slide_{number}.h5", seed=number)
            with h5py.File(tmp_path / f"patches/slide_{number}.h5", "w") as file:
                file["coords"] = np.zeros((4, 2), np.int32)  # no features
        rows = [f"patient_{n // 2},slide_{n},{'tumor' if n % 2 else 'normal'}" for n in range(6)]
        table = write_table(tmp_path / "tumor.csv", ["case_id,slide_id,label", *rows])
        splits = [
            "0,slide_0,slide_2,slide_4",
            "1,slide_1,,slide_5",
        ]
        write_table(tmp_path / "splits/task_1/splits_0.csv", [",train,val,test", *splits])
        write_table(tmp_path / "splits/task_1/splits_0_bool.csv", [",train,val,test", "s,1,0,0"])
        write_table(tmp_path / "splits/task_1/splits_1.csv", [",train,val,test", "0,a,b,c"])
        for place in (table, tmp_path):
            data = find(place)
            assert data.settings is None
            assert data.tasks == ["label"]
            assert {row.path.name: row.split for row in data.rows} == {
                "slide_0.h5": "train",
                "slide_1.h5": "train",
                "slide_2.h5": "val",
                "slide_4.h5": "test",
                "slide_5.h5": "test",
            }
            assert all(row.path.parent.name == "h5_files" for row in data.rows)
            assert [row.group for row in data.rows][:2] == ["patient_0", "patient_0"]
            assert data.left_out == {
                "slide_3": f"is not in {tmp_path / 'splits/task_1/splits_0.csv'}"
            }

    def test_stamp(self, tmp_path: Path) -> None:
        for number in range(4):
            store(tmp_path / f"features/s{number}.h5", seed=number)
        clinical = ["PATIENT,AGE,isMSIH", "p1,61.5,MSI", "p2,55.2,nonMSI", "p3,70.1,"]
        table = write_table(tmp_path / "clini.csv", clinical)
        slides = ["PATIENT,FILENAME", "p1,s0.h5", "p1,s1.h5", "p2,s2.h5", "p3,s3.h5", "p9,s9.h5"]
        write_table(tmp_path / "slide.csv", slides)
        for place in (table, tmp_path):
            data = find(place)
            assert data.tasks == ["isMSIH"]
            assert labels(data) == {"MSI": ["s0.h5", "s1.h5"], "nonMSI": ["s2.h5"]}
            assert [row.group for row in data.rows] == ["p1", "p1", "p2"]
            assert data.left_out == {"s3.h5": "has no isMSIH"}


class TestFolders:
    def test_sub_folders_are_labels(self, tmp_path: Path) -> None:
        for number in range(6):
            draw(tmp_path / f"{'ok' if number % 2 else 'bad'}/{number}.png", seed=number)
        draw(tmp_path / "stray.png", seed=9)
        data = find(tmp_path)
        assert labels(data) == {
            "bad": ["0.png", "2.png", "4.png"],
            "ok": ["1.png", "3.png", "5.png"],
        }
        assert data.settings is None
        assert "1 images are in no sub-folder, and are left out" in data.notes

    def test_sub_folders_of_splits(self, tmp_path: Path) -> None:
        for number in range(8):
            split, label = ("train", "test")[number > 5], ("ok", "bad")[number % 2]
            draw(tmp_path / f"images/{split}/{label}/{number}.png", seed=number)
        data = find(tmp_path)
        assert {(row.split, row.labels["label"]) for row in data.rows} == {
            ("train", "ok"),
            ("train", "bad"),
            ("test", "ok"),
            ("test", "bad"),
        }

    @pytest.mark.parametrize("stray", ["cover.png", "extra/cover.png"])
    def test_folders_of_splits_are_no_labels_beside_others(
        self, tmp_path: Path, stray: str
    ) -> None:
        for number in range(8):
            split, label = ("train", "test")[number > 5], ("ok", "bad")[number % 2]
            draw(tmp_path / f"{split}/{label}/{number}.png", seed=number)
        draw(tmp_path / stray, seed=9)
        data = find(tmp_path)
        assert set(labels(data)) == {"ok", "bad"}
        assert [row.split for row in data.rows] == ["test"] * 2 + ["train"] * 6
        assert "1 images are in no sub-folder, and are left out" in data.notes

    def test_a_class_may_be_called_train(self, tmp_path: Path) -> None:
        for label in ("bus", "train"):
            draw(tmp_path / label / "0.png", seed=0)
        assert set(labels(find(tmp_path))) == {"bus", "train"}

    def test_folders_inside_those_of_the_labels_stay_together(self, tmp_path: Path) -> None:
        for number in range(24):
            label, patient = ("ok", "bad")[number % 2], f"{number // 2}"
            draw(tmp_path / f"{label}/{patient}/{number}.png", seed=number)
        data = find(tmp_path)
        assert {row.path.parent.name == row.group for row in data.rows} == {True}
        assert any("--group none" in note for note in data.notes)
        assert {row.group for row in find(tmp_path, group="none").rows} == {None}

    def test_a_patient_in_the_folders_of_two_splits_is_refused(self, tmp_path: Path) -> None:
        for number in range(24):
            split, label = ("train", "test")[number // 20], ("ok", "bad")[number % 2]
            patient = 0 if number == 23 else number // 2  # also in the folder of training images
            draw(tmp_path / f"photos/{split}/{label}/p{patient}/{number}.png", seed=number)
        data = find(tmp_path / "photos")
        assert {row.path.parent.name == row.group for row in data.rows} == {True}
        assert any("no split may divide" in note for note in data.notes)
        write_found(tmp_path / "table.csv", data)
        with pytest.raises(DataError, match=r"divides 1 of 12 patients or groups \(p0\)"):
            read_table(tmp_path / "table.csv", tasks=["label"])
        assert {row.group for row in find(tmp_path / "photos", group="none").rows} == {None}

    def test_linked_folders_are_searched_once(self, tmp_path: Path) -> None:
        for number in range(4):
            draw(tmp_path / f"stored/{'ok' if number % 2 else 'bad'}/{number}.png", seed=number)
        (tmp_path / "data").mkdir()
        for label in ("ok", "bad"):
            (tmp_path / "data" / label).symlink_to(tmp_path / "stored" / label)
        (tmp_path / "data" / "ok" / "loop").symlink_to(tmp_path / "data")
        data = find(tmp_path / "data")
        assert labels(data) == {"bad": ["0.png", "2.png"], "ok": ["1.png", "3.png"]}

    @pytest.mark.parametrize("folder", ["", "images", "train"])
    def test_a_folder_without_labels_is_one_sentence(self, tmp_path: Path, folder: str) -> None:
        for number in range(3):
            draw(tmp_path / folder / f"{number}.png", seed=number)
        with pytest.raises(DataError, match="3 images but no labels: put the images of each class"):
            find(tmp_path)

    def test_an_empty_folder_and_a_wrong_file(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="there is no image, slide or feature file in it"):
            find(tmp_path)
        with pytest.raises(DataError, match="there is no such file or folder"):
            find(tmp_path / "gone")
        with pytest.raises(DataError, match="expected a folder of images or a CSV"):
            find(draw(tmp_path / "a.png", seed=0))
