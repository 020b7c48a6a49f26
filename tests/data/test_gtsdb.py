"""GTSDB from small files in its layout: downloaded or copied, complete, and as two tables."""

from __future__ import annotations

import hashlib
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ips.config import TaskConfig
from ips.data import gtsdb
from ips.data.gtsdb import KINDS, LIMITS, copy_gtsdb, download_gtsdb, read_signs
from ips.data.labels import encode_labels
from ips.data.table import read_cells, read_table
from ips.errors import DataError
from tests.command import Outcome, refused
from tests.data.test_download import Server, loopback, serving

__all__ = ["loopback"]  # a fixture that every test here uses

COUNT, TRAINING, SIZE = 30, 20, (100, 70)
SIGNS = [
    "00000.ppm;10;20;29;39;1",
    "00001.ppm;1;2;30;40;2",
    "00001.ppm;40;2;60;20;2",
    "00001.ppm;70;2;90;20;33",
    "00002.ppm;5;5;25;25;0",  # the only limit of 20
    "00003.ppm;5;5;25;25;6",
    "00003.ppm;50;5;70;25;18",
    *(f"{n:05d}.ppm;10;20;29;39;1" for n in range(4, 10)),
    *(f"{n:05d}.ppm;10;20;29;39;8" for n in range(25, 30)),
]


def write_gtsdb(folder: Path, monkeypatch: pytest.MonkeyPatch, *, suffix: str = ".ppm") -> Path:
    """A small copy of the data set, whose sizes and checksum take the place of the real ones."""
    folder.mkdir(parents=True, exist_ok=True)
    width, height = SIZE
    for number in range(COUNT):
        pixels = np.random.default_rng(number).integers(0, 256, (height, width, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:05d}{suffix}")
    text = "".join(f"{line}\n" for line in SIGNS).encode()
    (folder / "gt.txt").write_bytes(text)
    monkeypatch.setattr(gtsdb, "BOXES_MD5", hashlib.md5(text).hexdigest())
    numbers = {"IMAGES": COUNT, "TRAINING": TRAINING, "VALIDATION": 5, "SIZE": SIZE}
    for name, value in numbers.items():
        monkeypatch.setattr(gtsdb, name, value)
    return folder


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return write_gtsdb(tmp_path / "source", monkeypatch)


@pytest.fixture
def archive(source: Path, tmp_path: Path) -> Path:
    """The official archive: photographs in a folder, and crops of the same names in others."""
    path = tmp_path / "mirror" / "FullIJCNN2013.zip"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for stored in sorted(source.iterdir()):
            file.write(stored, f"FullIJCNN2013/{stored.name}")
        file.writestr("FullIJCNN2013/01/00000.ppm", b"a crop")
        file.writestr("FullIJCNN2013/ReadMe.txt", b"read me")
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def rows(table: Path) -> list[dict[str, str]]:
    return [cells for _, cells in read_cells(table)[1]]


def test_the_tables_have_limits_kinds_split_and_boxes(source: Path, tmp_path: Path) -> None:
    copy_gtsdb(source, tmp_path / "out")
    images = rows(tmp_path / "out" / "gtsdb.csv")
    assert [row["filename"] for row in images] == [f"{n:05d}.ppm" for n in range(COUNT)]
    assert [row["limit"] for row in images[:4]] == ["30", "50", "20", "none"]
    assert [row["limit"] for row in images[24:]] == ["none", *["120"] * 5]
    expected = ["prohibitory", "prohibitory;mandatory", "prohibitory", "danger;other"]
    assert [row["kinds"] for row in images[:4]] == expected
    assert {row["kinds"] for row in images[10:25]} == {""}
    boxes = rows(tmp_path / "out" / "boxes.csv")
    assert len(boxes) == len(SIGNS)
    assert list(boxes[0].values()) == ["00000.ppm", "10", "20", "30", "40", "30", "prohibitory"]
    assert (boxes[3]["limit"], boxes[3]["kinds"]) == ("", "mandatory")


def test_validation_images_are_some_of_every_frequent_limit_of_the_training_images(
    source: Path, tmp_path: Path
) -> None:
    copy_gtsdb(source, tmp_path / "out")
    images = rows(tmp_path / "out" / "gtsdb.csv")
    splits = [row["split"] for row in images]
    assert set(splits[:TRAINING]) == {"train", "validation"}
    assert set(splits[TRAINING:]) == {"test"}
    limits = [row["limit"] for row in images if row["split"] == "validation"]
    assert len(limits) == 5
    assert {limit: n for limit, n in Counter(limits).items() if limit in ("30", "none")} == {
        "30": 2,
        "none": 2,
    }
    copy_gtsdb(source, tmp_path / "again")
    assert contents(tmp_path / "again") == contents(tmp_path / "out")


def test_the_table_is_that_of_the_recipe(source: Path, tmp_path: Path) -> None:
    copy_gtsdb(source, tmp_path)
    tasks = {
        "limit": TaskConfig(kind="multiclass", classes=9, names=LIMITS),
        "kinds": TaskConfig(kind="multilabel", classes=4, names=KINDS),
    }
    table = read_table(tmp_path / "gtsdb.csv", path="filename", tasks=list(tasks))
    labels = encode_labels(table, tasks).labels
    assert int(labels[2]["limit"]) == LIMITS.index("20")
    assert labels[3]["kinds"].tolist() == [0, 0, 1, 1]
    assert labels[20]["kinds"].tolist() == [0, 0, 0, 0]


def test_every_class_has_the_kind_that_the_benchmark_gives_it() -> None:
    kinds = [gtsdb._KIND_OF.get(number, "other") for number in range(43)]
    assert Counter(kinds) == {"prohibitory": 12, "mandatory": 8, "danger": 15, "other": 8}
    assert [n for n, kind in enumerate(kinds) if kind == "other"] == [6, 12, 13, 14, 17, 32, 41, 42]
    limits = {number: gtsdb._LIMIT_OF.get(number) for number in range(9)}
    assert list(limits.values()) == ["20", "30", "50", "60", "70", "80", None, "100", "120"]


def test_the_photographs_of_the_archive_are_downloaded_once_without_crops(
    source: Path, archive: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    download_gtsdb(out, mirrors=[archive.parent.as_uri()])
    stored = contents(out)
    assert {name: stored[name] for name in contents(source)} == contents(source)
    assert set(stored) - set(contents(source)) == {"FullIJCNN2013.zip", "boxes.csv", "gtsdb.csv"}
    archive.unlink()
    (out / "00003.ppm").unlink()
    download_gtsdb(out)  # from the archive that is there
    (out / "FullIJCNN2013.zip").unlink()
    download_gtsdb(out)
    del stored["FullIJCNN2013.zip"]
    assert contents(out) == stored


def test_an_interrupted_download_is_resumed(archive: Path, tmp_path: Path) -> None:
    for server in serving(Server({"/FullIJCNN2013.zip": archive.read_bytes()})):
        server.cut = 5000
        with pytest.raises(DataError, match="broke off after 5,000 of"):
            download_gtsdb(tmp_path / "out", mirrors=[server.home])
        server.cut = None
        download_gtsdb(tmp_path / "out", mirrors=[server.home])
        assert [asked for _, asked in server.asked] == [None, "bytes=5000-"]
    assert (tmp_path / "out" / "gtsdb.csv").exists()


@pytest.mark.parametrize("suffix", [".ppm", ".jpg"])
def test_a_copy_is_made_of_a_folder_or_of_the_archive(
    suffix: str, tmp_path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_gtsdb(tmp_path / "unpacked" / "FullIJCNN2013", monkeypatch, suffix=suffix)
    for given in (folder, folder.parent):
        copy_gtsdb(given, tmp_path / f"out-{given.name}")
        stored = contents(tmp_path / f"out-{given.name}")
        assert {name: stored[name] for name in contents(folder)} == contents(folder)
        assert rows(tmp_path / f"out-{given.name}" / "gtsdb.csv")[0]["filename"] == f"00000{suffix}"
    copy_gtsdb(archive, tmp_path / "out-archive")
    assert len(rows(tmp_path / "out-archive" / "gtsdb.csv")) == COUNT
    assert not (tmp_path / "out-archive" / "ReadMe.txt").exists()


def test_an_interrupted_copy_is_completed(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"

    def interrupt(_: str, done: float, total: float | None) -> None:
        if done == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy_gtsdb(source, out, progress=interrupt)
    assert sorted(contents(out)) == [f"{n:05d}.ppm" for n in range(7)]
    (out / "00003.ppm").write_bytes((source / "00004.ppm").read_bytes())  # to see that it is kept
    copy_gtsdb(source, out)
    assert (out / "00003.ppm").read_bytes() == (source / "00004.ppm").read_bytes()
    assert len(rows(out / "gtsdb.csv")) == COUNT


def test_formats_are_not_mixed(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = write_gtsdb(tmp_path / "out", monkeypatch, suffix=".jpg")
    (out / "00011.jpg").unlink()
    copy_gtsdb(source, out)
    for name in ("gtsdb.csv", "boxes.csv"):
        assert {Path(row["filename"]).suffix for row in rows(out / name)} == {".ppm"}


def test_line_ends_of_gt_txt_do_not_matter_but_its_content_does(
    source: Path, tmp_path: Path
) -> None:
    text = (source / "gt.txt").read_bytes()
    (source / "gt.txt").write_bytes(text.replace(b"\n", b"\r\n"))
    copy_gtsdb(source, tmp_path / "out")
    assert read_signs(tmp_path / "out")[0].box == (10, 20, 30, 40)
    (source / "gt.txt").write_bytes(text.replace(b";10;", b";11;"))
    with pytest.raises(DataError, match=r"source/gt\.txt is not the published .*give another"):
        copy_gtsdb(source, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    (tmp_path / "out" / "gt.txt").write_bytes(b"mine")
    with pytest.raises(DataError, match=r"out/gt\.txt is not the published file .*: delete it"):
        download_gtsdb(tmp_path / "out")
    assert (tmp_path / "out" / "gt.txt").read_bytes() == b"mine"


def test_incomplete_and_foreign_photographs_are_refused(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (source / "00011.ppm").rename(tmp_path / "kept")
    with pytest.raises(DataError, match=r"1 of 30 photographs are missing, such as 00011\.ppm: "):
        copy_gtsdb(source, out)
    Image.new("RGB", (50, 35)).save(source / "00011.ppm")
    with pytest.raises(DataError, match=r"00011\.ppm has 50 x 35 px, but the boxes are for 100 x "):
        copy_gtsdb(source, out)
    (source / "00011.ppm").write_bytes(b"P7 what?")
    with pytest.raises(DataError, match=r"00011\.ppm cannot be read .*: give another folder"):
        copy_gtsdb(source, out)
    with pytest.raises(DataError, match=r"gone/gt\.txt cannot be read \(no such file"):
        copy_gtsdb(tmp_path / "gone", out)
    assert not out.exists()
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as file:
        file.writestr("a/00000.ppm", b"x")
    with pytest.raises(DataError, match="29 of 30 photographs are missing, such as 00001"):
        copy_gtsdb(tmp_path / "other.zip", out)


def test_the_command_copies_and_says_how_to_train(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    outcome = Outcome("data", "gtsdb", out, "--from", source)
    assert outcome.code == 0, outcome.err
    words = " ".join((outcome.out + outcome.err).split())
    assert "out: 15 + 5 + 10 photographs, 18 signs" in words
    assert "ips train gtsdb --set" in words
    assert refused("data", "gtsdb", out, "--from", source, "--mirror", "https://x.example") == (
        "--mirror and --from: give one of them"
    )
