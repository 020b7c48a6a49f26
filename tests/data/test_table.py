"""Tables of own data: what is accepted and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from ips.data.cells import encoding_note
from ips.data.table import Row, TableData, read_table
from ips.errors import DataError
from ips.patches.source import MemoryPatches


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
    @pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
    @pytest.mark.parametrize("separator", [",", ";", "\t"])
    @pytest.mark.parametrize("newline", ["\n", "\r\n"])
    def test_accepts_common_kinds_of_csv(
        self, folder: Path, separator: str, newline: str, encoding: str
    ) -> None:
        lines = ["path,grade, Split", "a.tif,höher,train", "", "b.tif, low ,Test", ",,"]
        text = newline.join(lines).replace(",", separator)
        assert read_table(write(folder, text, encoding=encoding), tasks=["grade"]) == [
            Row(folder / "a.tif", {"grade": "höher"}, "train"),
            Row(folder / "b.tif", {"grade": "low"}, "test"),
        ]

    def test_root_and_path_column_can_be_set(self, folder: Path) -> None:
        (folder / "tables").mkdir()
        table = write(folder / "tables", "slide,x,y\na.tif,1,\n")
        (row,) = read_table(table, root=folder, path="slide", tasks=["x", "y"])
        assert row == Row(folder / "a.tif", {"x": "1", "y": ""}, None)

    @pytest.mark.parametrize(
        "column",
        [
            *("PatientID", "Patient ID", "case-id", "subject_id", "patient_number", "PatientNr"),
            *("pid", "MRN", "donor_id", "person_id", "patient name"),
        ],
    )
    def test_patients_are_found_by_the_name_of_their_column(
        self, folder: Path, column: str
    ) -> None:
        table = write(folder, f"path,x,{column}\na.tif,1,7\n")
        (row,) = read_table(table, tasks=["x"])
        assert row.group == "7"

    @pytest.mark.parametrize("column", ["person", "mouse", "patient_age", "caseload", "rapid"])
    def test_other_columns_are_no_patients(self, folder: Path, column: str) -> None:
        table = write(folder, f"path,x,{column}\na.tif,1,7\n")
        assert read_table(table, tasks=["x"])[0].group is None

    def test_the_column_of_files_is_no_group(self, folder: Path) -> None:
        table = write(folder, "case,x,patient\na.tif,1,7\n")
        (row,) = read_table(table, path="case", tasks=["x"])
        assert row.group == "7"

    def test_a_task_may_be_called_split(self, folder: Path) -> None:
        table = write(folder, "path,Split\na.tif,wood\n")
        assert read_table(table, tasks=["Split"]) == [
            Row(folder / "a.tif", {"Split": "wood"}, None)
        ]

    def test_several_slides_of_one_feature_file(self, folder: Path) -> None:
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
            (
                "path,Grade\na.tif,1\n",
                "no column 'grade' among path, Grade: write tasks.Grade instead of",
            ),
            ("file,grade\na.tif,1\n", "no column 'path' among file, grade: write data.path: file$"),
            ("grade,x\n1,a.tif\n", "no column 'path' among grade, x: write data.path: x$"),
            ("Paths,grade\nc.tif,1\n", "no column 'path' .*: write data.path: Paths$"),
            ("grade,Filename\n1,c.tif\n", "no column 'path' .*: write data.path: Filename$"),
            ("grade\n1\n", "no column 'path' among grade: write data.path: COLUMN$"),
            (f"{'(' * 999},grade\na.tif,1\n", r"write data.path: \({160}\.\.\.$"),
            ("path,score\na.tif,1\n", "no column 'grade' .*: name a task like its column$"),
            ("path,grade,grade\na.tif,1,2\n", "two columns are called 'grade'"),
            ("path,grade\na.tif,1\n,1\n", "line 3: no file in column 'path'"),
            ("path,grade\na.tif,1\nb.tif,2\na.tif,1\n", "lines 2 and 4: both name a.tif"),
            ("path,grade,split\na.tif,1,dev\n", "line 2: split 'dev', expected train, val or test"),
            ("path,grade,split\na.tif,1,\n", "split '', expected"),
            ("path,grade,Split\na.tif,1,dev\n", "line 2: split 'dev', expected train, val or test"),
            ("path,grade,split,Split\na.tif,1,,\n", "two columns are called split and Split"),
            ("path,grade\na.tif,1,2\n", "line 2: 3 cells under 2 columns: put quotes"),
            ("path,grade\na.tif\n", "line 2: 1 cells under 2 columns: add the missing"),
            ('path,grade\na.tif,"1\n', "not a readable CSV"),
            ("path,grade\nx.tif,1\na.tif,1\ny.tif,1\n", r"2 of 3 files.*x\.tif.*y\.tif.*set root"),
            (f"path,grade\n{'x' * 5000},1\n", "1 of 1 files do not exist, such as .{,400}$"),
            (f"path,grade,split\na.tif,1,{'x' * 5000}\n", "line 2: split .{,200}$"),
        ],
    )
    def test_wrong_tables_are_refused(self, folder: Path, text: str, message: str) -> None:
        with pytest.raises(DataError, match=rf"table\.csv.*{message}"):
            read_table(write(folder, text), tasks=["grade"])

    def test_missing_and_wrongly_encoded_tables_are_refused(self, folder: Path) -> None:
        with pytest.raises(DataError, match=r"none\.csv: no such table"):
            read_table(folder / "none.csv", tasks=[])
        for content in (
            "path\nä.tif".encode("utf-16-le"),  # without its mark
            "path\nä.tif".encode("utf-16")[:-1],
            b"path\n\x81.tif",
            "path\nä.tif\n".encode() + b"\xe4.tif",  # UTF-8 and Windows-1252
        ):
            table = folder / "table.csv"
            table.write_bytes(content)
            with pytest.raises(
                DataError, match=r"not a readable CSV \(.*\): save it as CSV UTF-8$"
            ):
                read_table(table, tasks=[])

    @pytest.mark.parametrize("first", ["sep=;", "SEP=;", '"sep=;"'])
    @pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
    @pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
    def test_a_first_line_with_the_separator(
        self, folder: Path, first: str, encoding: str, newline: str
    ) -> None:
        lines = [first, "path;a,b,c", "a.tif;1", "b.tif;2"]
        table = write(folder, newline.join(lines), encoding=encoding)
        rows = read_table(table, tasks=["a,b,c"])
        assert [row.labels["a,b,c"] for row in rows] == ["1", "2"]
        assert [row.line for row in rows] == [3, 4]

    def test_a_guessed_encoding_is_said(self, folder: Path) -> None:
        text = "path;grade\na.tif;größer, à part\n"
        note = encoding_note(write(folder, text, encoding="cp1252"))
        assert note is not None
        assert "read as Windows-1252: if 'größer' looks wrong, save it as CSV UTF-8" in note
        for encoding in ("utf-8", "utf-8-sig", "utf-16"):
            assert encoding_note(write(folder, text, encoding=encoding)) is None


class TestTableData:
    def test_files_are_opened_on_demand(self) -> None:
        opened: list[Path] = []

        def open_patches(path: Path) -> MemoryPatches:
            opened.append(path)
            return MemoryPatches(torch.zeros(2, 3), name=path.name)

        rows = rows_of("y", ["0", "1"])
        labels = [{"y": torch.tensor(0.0)}, {"y": torch.tensor(1.0)}]
        data = TableData(rows, labels=labels, open=open_patches)
        assert len(data) == 2
        assert opened == []
        source, label = data[1]
        assert source.name == "1.tif"
        assert label["y"].item() == 1
        assert opened == [Path("1.tif")]
        loader: DataLoader[Any] = DataLoader(data, batch_size=None)  # type: ignore[arg-type]
        assert [source.name for source, _ in loader] == ["0.tif", "1.tif"]

    def test_rows_and_labels_must_match(self) -> None:
        with pytest.raises(DataError, match="2 rows but 0 labels"):
            TableData(
                rows_of("y", ["0", "1"]), labels=[], open=lambda _: MemoryPatches(torch.zeros(1, 1))
            )
