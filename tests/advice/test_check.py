"""`ips check` names every planted fault, with its file or line and what to do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tifffile
import yaml
from PIL import Image

from ips import api
from ips.advice.cost import Cost
from ips.advice.examine import Examined, look_alikes
from ips.advice.problems import Report
from ips.advice.survey import FileFacts
from tests.advice.pictures import draw, store, write_table
from tests.cli.tiny import TINY
from tests.command import Outcome

CONFIG: dict[str, dict[str, Any]] = {
    "patches": {"size": 16, "edge": "pad"},
    "encoder": {"name": "thin-resnet", "stages": 1, "width": 8},
    "select": {"keep": 3, "chunk": 4, "load": "lazy"},
    "aggregate": {"heads": 2},
    "train": {"epochs": 1, "batch": 2, "warmup": 0},
    "tasks": {"grade": {"kind": "multiclass", "classes": 3, "names": ["high", "low", "rare"]}},
}


class DataSet:
    """Forty pictures of two grades and twenty patients, without a fault, and a config."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows: list[list[str]] = []
        for number in range(40):
            draw(folder / f"{number:02}.png", seed=number)
            split = ("train", "train", "train", "val", "test")[number // 2 % 5]
            grade = "rare" if number % 10 < 2 else "high" if number % 2 else "low"
            self.rows.append([f"{number:02}.png", grade, f"p{number // 2}", split])
        for number in range(40):  # every split has every grade
            self.rows[number][1] = ("high", "low", "rare")[(number // 10 + number % 2) % 3]

    def picture(self, number: int) -> Path:
        return self.folder / self.rows[number][0]

    def write(self, **sections: object) -> Path:
        rows = [",".join(row) for row in self.rows]
        table = write_table(self.folder / "table.csv", ["path,grade,patient,split", *rows])
        config = {"data": {"kind": "table", "csv": str(table)}} | CONFIG | sections
        path = self.folder / "config.yaml"
        path.write_text(yaml.safe_dump(config))
        return path


@pytest.fixture
def data(tmp_path: Path) -> DataSet:
    return DataSet(tmp_path)


def found(report: Report, weight: str, pattern: str) -> bool:
    texts = [problem.text for problem in report.problems if problem.weight == weight]
    return any(re.search(pattern, text) for text in texts)


def test_data_without_a_fault(data: DataSet) -> None:
    outcome = Outcome("check", data.write())
    assert outcome.code == 0, outcome.out
    assert "error" not in outcome.out
    assert "24 train, 8 test, 8 validation" in outcome.out
    assert "24 (from 24 to 24)" in outcome.out  # patches
    assert "per epoch" in outcome.out
    assert "GB" in outcome.out
    assert "no errors; next: ips train" in outcome.err


def test_fifteen_faults_are_found_at_once(data: DataSet) -> None:
    damaged = data.picture(0)
    damaged.write_bytes(damaged.read_bytes()[:3000])
    data.picture(1).write_text("not a picture")
    data.picture(2).write_bytes(b"")
    data.picture(3).unlink()
    draw(data.picture(4), seed=4, mode="L")
    deep = np.random.default_rng(0).integers(0, 60_000, (64, 96), dtype=np.uint16)
    Image.fromarray(deep).save(data.picture(5))
    draw(data.picture(10), seed=10, size=(960, 640))
    exif = Image.Exif()
    exif[274] = 6
    Image.open(data.picture(11)).save(data.folder / "turned.jpg", exif=exif)
    data.rows[11][0] = "turned.jpg"
    data.picture(16).write_bytes(data.picture(12).read_bytes())  # val and train
    data.rows[16][1] = data.rows[12][1]
    data.picture(14).write_bytes(data.picture(13).read_bytes())  # two labels
    data.rows[13][1], data.rows[14][1] = "high", "low"
    data.rows[20][1] = "hgih"
    for row in data.rows:
        if row[1] == "rare" and row[3] == "test":
            row[1] = "low"
    data.rows[22][2] = data.rows[28][2]  # a patient in train and test
    data.rows[24][1] = ""
    data.rows[26][3] = "tarin"
    data.rows.append([*data.rows[30]])
    report = api.check(data.write())

    line = {number: number + 2 for number in range(40)}  # the header is line 1
    for pattern in (
        r"^00\.png.*damaged.*--skip-errors",
        r"^01\.png has no known image format.*convert it",
        r"02\.png is empty: copy or export it again",
        rf"line {line[3]}: 03\.png does not exist: correct the path",
        rf"12\.png \(line {line[12]}, train\) and 16\.png \(line {line[16]}, validation\) have "
        r"the same content, so scores would be too good: keep one",
        rf"13\.png \(line {line[13]}, .*\) and 14\.png \(line {line[14]}, .*\) have the same "
        r"content but the labels high and low: keep the right one",
        rf"20\.png.*line {line[20]}|line {line[20]}.*20\.png",
        r"label 'hgih'.*did you mean 'high'\?",
        r"its split divides 1 of 20 patients or groups \(p14\).*put all images of one",
        r"1 of \d+ rows have no label 'grade'.*24\.png.*fill them in",
        rf"line {line[26]}: split 'tarin', expected train, val or test",
        rf"lines {line[30]} and 42: both name 30\.png: keep one",
    ):
        assert found(report, "error", pattern), pattern
    for pattern in (
        r"^10\.png: 960 x 640 px, while the median image has 0\.01 megapixels: check that",
        r"no test image has the class rare: add some",
        r"only \d training images have the label 'rare' .*add some, or merge",
        r"only \d+ training images: add some",
    ):
        assert found(report, "warning", pattern), pattern


def test_all_errors_are_counted(data: DataSet) -> None:
    for number in range(25):
        data.picture(number).unlink()
    outcome = Outcome("check", data.write())
    assert outcome.code == 1
    assert "5 more of the same kind" in outcome.out
    assert "25 errors: correct them before training" in outcome.err


def test_channels_bit_depth_and_orientation(data: DataSet) -> None:
    draw(data.picture(4), seed=4, mode="L")
    deep = np.random.default_rng(0).integers(0, 60_000, (64, 96), dtype=np.uint16)
    Image.fromarray(deep).save(data.picture(5))
    exif = Image.Exif()
    exif[274] = 6
    Image.open(data.picture(11)).save(data.folder / "turned.jpg", exif=exif)
    data.rows[11][0] = "turned.jpg"
    report = api.check(data.write())
    assert found(report, "warning", r"^04\.png, 05\.png: 1 channel, most files have 3: they are")
    assert found(report, "warning", r"^05\.png: 16 bits per channel.*set patches\.white")
    assert found(report, "note", r"^turned\.jpg: stored on its side, and turned upright")
    assert not report.errors


def test_bands_that_differ_are_an_error_until_they_are_converted(data: DataSet) -> None:
    bands = np.random.default_rng(0).integers(0, 255, (4, 64, 96), dtype=np.uint8)
    options: dict[str, Any] = {"photometric": "minisblack", "planarconfig": "separate"}
    tifffile.imwrite(data.folder / "bands.tif", bands, **options)
    data.rows[4][0] = "bands.tif"
    report = api.check(data.write())
    (error,) = report.errors
    assert error.startswith("bands.tif: 4 channels, but most files have 3: set patches.channels: r")
    assert not any("converted" in problem.text for problem in report.problems)
    report = api.check(data.write(patches=CONFIG["patches"] | {"channels": "rgb"}))
    assert not report.errors
    assert found(report, "warning", r"^bands\.tif: 4 channels, most files have 3: they are conver")


def test_look_alikes_and_names_of_one_scene_in_two_splits(data: DataSet) -> None:
    for row in data.rows:
        row[2] = ""
    names = [f"board{number // 2}_{number % 2}.png" for number in range(40)]
    for row, name in zip(data.rows, names, strict=True):
        (data.folder / row[0]).rename(data.folder / name)
        row[0] = name
    data.rows[1][3] = "test"
    Image.open(data.picture(2)).convert("RGB").save(data.folder / "copy.jpg", quality=95)
    data.rows[8][0] = "copy.jpg"  # a test image
    rows = [",".join([row[0], row[1], row[3]]) for row in data.rows]
    config = data.write()
    write_table(data.folder / "table.csv", ["path,grade,split", *rows])
    report = api.check(config)
    assert found(
        report, "warning", r"^board1_0\.png \(train\) and copy\.jpg \(test\) look the same"
    )
    assert found(report, "warning", r"^board0_0\.png \(train\) and board0_1\.png \(test\) seem to")


def test_feature_files(data: DataSet) -> None:
    for number, row in enumerate(data.rows):
        row[0] = f"{number:02}.h5"
        store(data.folder / row[0], seed=number, width=7 if number == 3 else 16)
    with h5py.File(data.picture(5), "r+") as file:
        file["features"][2, 1] = np.nan
    report = api.check(data.write(encoder={"name": "projector", "dim": 8}))
    assert found(report, "error", r"^03\.h5: 7 features per patch, but most files have 16: store")
    assert found(report, "error", r"^05\.h5: the features of patch 2 are not finite: extract it")


def test_settings_that_do_not_fit_the_data(data: DataSet) -> None:
    report = api.check(data.write(encoder={"name": "projector", "dim": 8}))
    assert found(report, "error", "use projector for stored features")
    report = api.check(data.write(select={"keep": 100}))
    assert found(
        report, "note", r"select\.keep=100, but half of the images have at most 24 patches"
    )


def test_a_table_without_its_columns_is_one_error(data: DataSet) -> None:
    tasks = {"stage": {"kind": "multiclass", "classes": 2}}
    outcome = Outcome("check", data.write(tasks=tasks))
    assert outcome.code == 1
    assert "no column 'stage'" in outcome.out
    assert "1 error: correct it before training" in outcome.err


def test_fewer_epochs_on_the_command_line_shorten_the_warm_up(data: DataSet) -> None:
    config = data.write(train={"epochs": 9, "batch": 2, "warmup": 3})
    assert not api.check(config, settings=["train.epochs=2"]).errors


def test_a_guessed_encoding_is_noted(data: DataSet) -> None:
    data.rows[0][2] = data.rows[1][2] = "Müller"
    config = data.write()
    table = data.folder / "table.csv"
    table.write_bytes(table.read_text().encode("cp1252"))
    report = api.check(config)
    assert found(report, "note", "read as Windows-1252: if 'Müller' looks wrong, save it as")
    assert not report.errors


def test_a_label_that_the_config_names_is_no_typing_error(data: DataSet) -> None:
    data.rows[2][1] = "lows"
    kept = {"grade": {"kind": "multiclass", "classes": 4, "names": ["high", "low", "lows", "rare"]}}
    report = api.check(data.write(tasks=kept))
    assert not any("may be meant" in problem.text for problem in report.problems)
    open_names = {"grade": {"kind": "multiclass", "classes": 4}}
    report = api.check(data.write(tasks=open_names))
    assert found(report, "warning", r"label 'lows' may be meant as 'low': correct it, or ignore")


def test_time_follows_the_mean_image_and_memory_the_largest(
    data: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    cost = Cost(open=0, read=0, score=1, learn=0, saved=0, patch=2**20, model=0)
    monkeypatch.setattr("ips.advice.check.measure", lambda *_: cost)
    select = {"keep": 3, "chunk": 4, "load": "eager"}
    before = api.check(data.write(select=select)).facts
    draw(data.picture(10), seed=10, size=(960, 640))  # 2,400 patches instead of 24
    after = api.check(data.write(select=select)).facts
    assert before["expected time"].startswith("13 min per epoch")  # 32 images of 24 patches
    assert after["expected time"].startswith("44 min per epoch")  # of 83.4
    assert (before["expected memory"], after["expected memory"]) == ("0.7 GB", "5.4 GB")


def test_data_that_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(TINY))
    outcome = Outcome("check", path)
    assert outcome.code == 0
    assert "8 to train, 4 to test" in outcome.out


def test_pages_with_the_same_layout_are_not_copies_of_each_other() -> None:
    random = np.random.default_rng(0)
    layout = random.uniform(100, 255, 256)
    pages = [layout + random.normal(0, 1, 256) for _ in range(12)]
    pages.append(pages[3] + random.normal(0, 0.05, 256))
    facts = FileFacts("images", width=16, height=16, channels=1)
    files = {
        str(i): Examined(facts, (1, 8, 8), 4, 0.0, 0.0, page.astype(np.float32), None)
        for i, page in enumerate(pages)
    }
    assert look_alikes(list(files), files) == [("3", "12")]


def test_mistakes_in_the_objects_are_named_with_everything_else(data: DataSet) -> None:
    boxes = data.folder / "boxes.csv"
    lines = ["path,left,top,right,bottom", "00.png,1,2,5,6", "00.png,2,2,9000,6", "99.png,1,2,5,6"]
    boxes.write_text("\n".join([*lines, "01.png,5,5,5,9"]))
    section = {"kind": "table", "csv": str(data.folder / "table.csv"), "objects": str(boxes)}
    report = api.check(data.write(data=section))
    assert found(report, "error", r"boxes\.csv, line 3: the box 2, 2, 9000, 6 is not inside the im")
    assert found(report, "note", r"boxes\.csv: 1 boxes are ignored.* such as '99\.png' in line 4")
    assert found(report, "error", r"boxes\.csv, line 5: the box 5, 5, 5, 9 is empty")
    boxes.write_text("\n".join(lines[:2]))
    report = api.check(data.write(data=section))
    assert not any(problem.weight == "error" for problem in report.problems)
    assert report.facts["objects"] == "1 on 1 of 40 images"
    boxes.write_text("path,left,top,right\n00.png,1,2,3")
    assert found(api.check(data.write(data=section)), "error", r"no column 'bottom' among")


def test_patients_whose_images_differ_are_named_if_they_have_one_prediction(data: DataSet) -> None:
    table = {"kind": "table", "csv": str(data.folder / "table.csv"), "bags": "group"}
    outcome = Outcome("check", data.write(data=table))
    assert outcome.code == 1
    words = " ".join(outcome.out.replace("│", " ").split())  # the table breaks its lines
    assert "20 of 20 patients or groups have images with different labels" in words
    for number, row in enumerate(data.rows):
        row[1] = ("high", "low", "rare")[number // 2 % 3]
    outcome = Outcome("check", data.write(data=table))
    assert outcome.code == 0, outcome.out
    assert "20 with 40 images" in outcome.out
