"""Which images, labels, patients and splits are found in tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ips.advice.folders import find_data
from ips.advice.found import Hints
from ips.errors import ConfigError, DataError
from tests.advice.pictures import draw, find, labels, write_table


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A table beside a folder of six pictures."""
    for number in range(6):
        draw(tmp_path / f"photos/{number}.png", seed=number)
    rows = [f"{n}.png,p{n // 2},{'defect' if n % 3 else 'ok'},{n * 0.37:.2f}" for n in range(6)]
    return write_table(tmp_path / "photos.csv", ["file,patient,state,age", *rows])


class TestTables:
    def test_columns_and_folder_are_guessed(self, photos: Path) -> None:
        data = find(photos)
        assert data.tasks == ["state"]
        assert data.settings == {
            "csv": photos,
            "path": "file",
            "root": photos.parent / "photos",
            "group": "patient",
        }
        assert [row.group for row in data.rows] == ["p0", "p0", "p1", "p1", "p2", "p2"]
        assert {row.split for row in data.rows} == {None}

    def test_a_folder_with_one_table(self, photos: Path) -> None:
        write_table(photos.parent / "other.csv", ["a,b", "1,2"])
        assert find(photos.parent).settings == find(photos).settings

    def test_boxes_beside_a_table_are_its_objects(self, photos: Path) -> None:
        rows = ["file,left,top,right,bottom", "0.png,1,2,3,4"]
        boxes = write_table(photos.parent / "boxes.csv", rows)
        write_table(photos.parent / "others.csv", [rows[0].replace("file", "image"), rows[1]])
        settings = find(photos.parent).settings
        assert settings is not None
        assert (settings["csv"], settings["objects"]) == (photos, boxes)

    def test_the_columns_that_are_taken_are_named(self, photos: Path) -> None:
        taken = "photos.csv: files from file, labels from state, groups from patient; no column of "
        assert find(photos).notes[0] == f"{taken}split"
        assert find(photos.parent).notes[0] == f"{taken}split"  # all files are in one folder

    def test_a_stray_table_in_a_folder_of_classes(self, tmp_path: Path) -> None:
        names = [f"{'ok' if number % 2 else 'bad'}/{number}.png" for number in range(8)]
        for number, name in enumerate(names):
            draw(tmp_path / name, seed=number)
        scanners = [f"{name},{'AB'[number // 4]}" for number, name in enumerate(names)]
        write_table(tmp_path / "metadata.csv", ["filename,scanner", *scanners])
        data = find(tmp_path)
        assert set(labels(data)) == {"A", "B"}
        assert data.notes[0].startswith("metadata.csv: files from filename, labels from scanner")
        assert data.notes[0].endswith("; give --path none if the sub-folders are the labels")
        data = find(tmp_path, path="none")
        assert set(labels(data)) == {"ok", "bad"}
        assert data.notes[0] == "the sub-folders are the labels"

    def test_boxes_of_other_images_are_no_objects(self, photos: Path) -> None:
        rows = ["file,left,top,right,bottom", "8.png,1,2,9,4", "9.png,1,2,9,4"]
        boxes = write_table(photos.parent / "boxes.csv", rows)
        data = find(photos)
        assert data.boxes is None
        assert data.settings is not None
        assert "objects" not in data.settings
        write_table(boxes, [*rows, "1.png,1,2,33,4", "1.png,1,2,3,44", "2.png,1,2,3,4"])
        data = find(photos)
        assert data.boxes is not None
        assert (data.boxes.table, data.boxes.side) == (boxes, 32)
        assert data.settings is not None
        assert data.settings["objects"] == boxes

    def test_only_boxes_that_matter_for_the_label_have_a_size(self, photos: Path) -> None:
        rows = ["file,left,top,right,bottom,state", "1.png,0,0,9,4,ok", "1.png,0,0,60,50,"]
        write_table(photos.parent / "boxes.csv", rows)
        boxes = find(photos).boxes
        assert boxes is not None
        assert boxes.side == 9

    @pytest.mark.parametrize("given", ["folder", "file"])
    def test_unicode_text_of_excel(self, photos: Path, given: str) -> None:
        text = photos.with_suffix(".txt")
        text.write_bytes(photos.read_text().replace(",", "\t").encode("utf-16"))
        photos.unlink()
        data = find(photos.parent if given == "folder" else text)
        assert data.settings is not None
        assert data.settings["csv"] == text

    def test_texts_and_hidden_files_are_no_tables(self, photos: Path) -> None:
        folder = photos.parent
        write_table(folder / "readme.txt", ["Photographs, taken in 2024", "Hamburg, by night"])
        write_table(folder / "list.txt", ["file", *(f"{number}.png" for number in range(6))])
        (folder / "._photos.csv").write_bytes(bytes(range(256)))  # of macOS
        data = find(folder)
        assert data.settings == find(photos).settings == find(folder, path="file").settings
        assert not any("ignored" in note for note in data.notes)

    @pytest.mark.parametrize("encoding", ["cp1252", "utf-16"])
    def test_a_table_of_excel_in_a_folder(self, photos: Path, encoding: str) -> None:
        text = photos.read_text().replace("defect", "schädlich").replace(",", ";")
        photos.write_bytes(text.encode(encoding))
        data = find(photos.parent)
        assert set(labels(data)) == {"ok", "schädlich"}
        assert any("if 'schädlich' looks wrong" in n for n in data.notes) == (encoding == "cp1252")

    def test_unreadable_tables_in_a_folder_are_named(self, photos: Path) -> None:
        other = write_table(photos.parent / "other.csv", ["a,b", "1"])
        assert any(f"ignored {other}, line 2: 1 cells" in note for note in find(other.parent).notes)
        photos.write_text(photos.read_text() + "6.png,p3\n")
        other.unlink()
        with pytest.raises(DataError, match=r"photos\.csv, line 8: 2 cells under 4 columns"):
            find(photos.parent)
        draw(photos.parent / "rest/9.png", seed=9)
        data = find(photos.parent)
        assert set(labels(data)) == {"photos", "rest"}
        assert any(f"ignored {photos}, line 8" in note for note in data.notes)

    def test_an_ambiguous_label_is_one_sentence_or_a_question(self, photos: Path) -> None:
        lines = photos.read_text().splitlines()
        marked = [f"{line},{'AB'[n % 2]}" for n, line in enumerate(lines[1:])]
        write_table(photos, [f"{lines[0]},site", *marked])
        with pytest.raises(DataError, match="the label could be one of state, site: give it with"):
            find(photos)
        assert find(photos, labels=["site"]).tasks == ["site"]

        def ask(question: str, names: Sequence[str]) -> str:
            assert "labels" in question
            return names[-1]

        assert find_data(photos, Hints(), ask=ask).tasks == ["site"]

    def test_a_column_called_label_is_the_label(self, photos: Path) -> None:
        lines = photos.read_text().splitlines()
        marked = [f"{line},{'AB'[n % 2]}" for n, line in enumerate(lines[1:])]
        write_table(photos, [f"{lines[0]},Label", *marked])
        assert find(photos).tasks == ["Label"]

    @pytest.mark.parametrize(
        ("hints", "message"),
        [
            ({"labels": ["file"]}, "it has 6 different values in 6 rows, which are no classes"),
            ({"labels": ["grade"]}, "--label grade: .* has no such column, only file, patient"),
            ({"path": "image"}, "--path image: .* has no such column"),
            ({"images": Path("nowhere")}, "no column names files in nowhere: give their folder"),
        ],
    )
    def test_wrong_hints(self, photos: Path, hints: dict[str, object], message: str) -> None:
        with pytest.raises((DataError, ConfigError), match=message):
            find(photos, **hints)

    def test_rows_without_file_or_label_are_left_out(self, photos: Path) -> None:
        text = photos.read_text().replace("5.png,p2,defect", "gone.png,p2,defect")
        photos.write_text(text.replace("4.png,p2,defect", "4.png,p2,"))
        data = find(photos)
        assert data.left_out == {"4.png": "has no state", "gone.png": "does not exist"}
        assert len(data.rows) == 4
        assert any("gone.png" in note or "4.png" in note for note in data.notes)

    @pytest.mark.parametrize(
        ("row", "reason"),
        [
            ("5.png,,ok,1", None),  # a patient of its own
            (",p3,ok,1", ("a row", "has no file")),
            ("0.png,p0,ok,1", ("0.png", "is named twice")),
            ("0.png,p0,defect,1", ("0.png", "has different labels in two rows")),
        ],
    )
    def test_rows_that_a_training_refuses_need_a_new_table(
        self, photos: Path, row: str, reason: tuple[str, str] | None
    ) -> None:
        lines = [line for line in photos.read_text().splitlines() if "5.png" not in line]
        data = find(write_table(photos, [*lines, row]))
        assert data.settings is None
        assert data.left_out == dict([reason] if reason else [])
        files = [found.path.name for found in data.rows]
        kept = {"0.png", "1.png", "2.png", "3.png", "4.png"} | ({"5.png"} if not reason else set())
        assert sorted(files) == sorted(kept - ({"0.png"} if "defect" in row else set()))

    def test_two_columns_of_one_name(self, photos: Path) -> None:
        lines = photos.read_text().replace("patient", "state")
        photos.write_text(lines)
        with pytest.raises(DataError, match="two columns are called 'state': rename one"):
            find(photos, labels=["state"])

    @pytest.mark.parametrize("name", ["group", "Subject", "split"])
    def test_a_label_is_no_group(self, photos: Path, name: str) -> None:
        photos.write_text(photos.read_text().replace("state", name))
        data = find(photos, labels=[name])
        assert data.tasks == [name]
        assert [row.group for row in data.rows] == ["p0", "p0", "p1", "p1", "p2", "p2"]

    def test_names_of_several_files_in_another_column(self, tmp_path: Path) -> None:
        rows = []
        for number in range(12):
            name = f"{'ab'[number % 2]}/{100 + number // 2}.png"
            draw(tmp_path / name, seed=number)
            rows.append(f"{100 + number // 2},{name},{'ok' if number % 3 else 'bad'}")
        table = write_table(tmp_path / "t.csv", ["id,place,label", *rows])
        assert len(find(table).rows) == 12
        write_table(table, ["id,label", *(row[:4] + row[row.rindex(",") + 1 :] for row in rows)])
        with pytest.raises(DataError, match=r"could be .*100.png or .*100.png: write paths"):
            find(table)

    def test_a_split_of_another_name_needs_a_new_table(self, photos: Path) -> None:
        lines = photos.read_text().splitlines()
        words = ["Training", "training", "valid", "Testing", "testing", "train"]
        marked = [f"{line},{word}" for line, word in zip(lines[1:], words, strict=True)]
        write_table(photos, [f"{lines[0]},set", *marked])
        data = find(photos, group="none")
        assert data.settings is None
        assert [row.split for row in data.rows] == [
            "train",
            "train",
            "val",
            "test",
            "test",
            "train",
        ]

    def test_validation_images_become_test_images_if_there_are_none(self, photos: Path) -> None:
        lines = photos.read_text().splitlines()
        marked = [f"{line},{'val' if n > 3 else 'train'}" for n, line in enumerate(lines[1:])]
        write_table(photos, [f"{lines[0]},split", *marked])
        data = find(photos)
        assert [row.split for row in data.rows] == ["train"] * 4 + ["test"] * 2
        assert data.settings is None
        assert "there is no test image, so those for validation are the test images" in data.notes

    def test_numbers_of_patients_stay_together(self, tmp_path: Path) -> None:
        for number in range(24):
            draw(tmp_path / f"{number}.png", seed=number)
        rows = [f"{number}.png,{number % 2},{number // 2}" for number in range(24)]
        data = find(write_table(tmp_path / "t.csv", ["file,sign,patient_number", *rows]))
        assert data.tasks == ["sign"]
        assert [row.group for row in data.rows][:3] == ["0", "0", "1"]

    def test_images_that_share_a_name_stay_together(self, tmp_path: Path) -> None:
        for number in range(24):
            draw(tmp_path / f"{number}.png", seed=number)
        rows = [f"{n}.png,{'no' if n % 3 else 'yes'},s{n // 2},{n % 5}" for n in range(24)]
        table = write_table(tmp_path / "streets.csv", ["file,sign,street,hour", *rows])
        data = find(table, labels=["sign"])
        assert [row.group for row in data.rows][:4] == ["s0", "s0", "s1", "s1"]
        assert data.notes[1:] == [
            "images of one street stay together; give --group none if they need not"
        ]
        assert find(table, labels=["sign"], group="none").rows[0].group is None
        twice = [f"{row},t{n // 2}" for n, row in enumerate(rows)]
        write_table(table, ["file,sign,street,hour,trip", *twice])
        data = find(table, labels=["sign"])
        assert data.rows[0].group is None
        assert "images share street and trip" in data.notes[1]

    def test_the_coarser_of_two_group_columns(self, photos: Path) -> None:
        lines = photos.read_text().splitlines()
        marked = [f"{line},c{n}" for n, line in enumerate(lines[1:])]
        write_table(photos, [f"{lines[0]},case_id", *marked])
        assert find(photos).settings["group"] == "patient"  # type: ignore[index]
