"""CAMELYON16: labels, splits, corrections of known errors, and a training on its features."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from ips.cli.app import app
from ips.config_io import parse_config
from ips.data.camelyon16 import camelyon16_table, read_reference
from ips.data.objects import AnnotationFolder
from ips.data.table import read_table
from ips.errors import DataError
from ips.patches import FeatureWriter
from ips.recipes import read_recipe
from ips.training import train
from tests.data.test_regions import SQUARE, annotation, write

TUMOURS = {1, 2, 49, 114, 130}


def reference(layout: str) -> str:
    """Labels of all test slides in a published layout."""
    if layout == "headless":
        lines = [
            f"test_{n:03},{'Tumor' if n in TUMOURS else 'Normal'},None,None" for n in range(1, 131)
        ]
        return "\n".join(lines)
    rows = [
        f"test_{n:03}.tif,{'IDC' if n in TUMOURS else 'None'},"
        f"{'tumor' if n in TUMOURS else 'normal'},{n % 2}"
        for n in range(1, 131)
    ]
    return "\n".join(["image,type,class,center", *rows])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """All files of the first release, empty."""
    root = tmp_path / "camelyon16"
    slides = {
        "training/normal": [f"Normal_{n:03}" for n in range(1, 161)],
        "training/tumor": [f"Tumor_{n:03}" for n in range(1, 111)],
        "testing/images": [f"Test_{n:03}" for n in range(1, 131)],
    }
    for place, names in slides.items():
        (root / place).mkdir(parents=True)
        for name in names:
            (root / place / f"{name}.tif").touch()
    (root / "testing/reference.csv").write_text(reference("headless"))
    return root


@pytest.mark.parametrize("layout", ["headless", "headed"])
def test_reads_both_layouts_of_the_labels(tmp_path: Path, layout: str) -> None:
    path = tmp_path / "reference.csv"
    path.write_text(reference(layout))
    expected = {f"test_{n:03}": int(n in TUMOURS) for n in range(1, 131)}
    assert read_reference(path) == expected


def test_lists_the_complete_data_set(folder: Path) -> None:
    table = camelyon16_table(folder)
    assert table.missing == []
    assert table.missing_message is None
    counts = [
        sum((s.split, s.tumor) == (split, tumor) for s in table.slides)
        for split, tumor in (("train", 0), ("train", 1), ("test", 0), ("test", 1))
    ]
    assert counts == [159, 111, 125, 4]  # 270 and 129; the paper's numbers
    assert len({slide.name for slide in table.slides}) == len(table.slides) == 399


def test_known_errors_are_corrected(folder: Path) -> None:
    slides = {slide.name: slide for slide in camelyon16_table(folder).slides}
    assert "test_049" not in slides
    assert "normal_086" not in slides
    assert slides["tumor_111"].tumor == 1
    assert slides["tumor_111"].path.name == "Normal_086.tif"
    # a slide with two files is listed once
    (folder / "training/tumor/tumor_111.tif").touch()
    both = camelyon16_table(folder).slides
    assert len(both) == 399
    assert next(s for s in both if s.name == "tumor_111").path.name == "tumor_111.tif"


def test_missing_slides_are_counted_and_named(folder: Path) -> None:
    for n in range(1, 8):
        (folder / f"training/normal/Normal_{n:03}.tif").unlink()
    (folder / "training/normal/notes.tif").touch()  # not a slide of the data set
    table = camelyon16_table(folder)
    assert len(table.slides) == 392
    assert table.missing_message == (
        "7 of 399 slides are missing: normal_001, normal_002, normal_003, normal_004, normal_005 "
        "and 2 more"
    )


def test_wrong_folders_and_labels_are_refused(folder: Path, tmp_path: Path) -> None:
    labels = folder / "testing/reference.csv"
    with pytest.raises(DataError, match="no slides in training/normal"):
        camelyon16_table(tmp_path / "nowhere")
    with pytest.raises(DataError, match="no feature files with names of CAMELYON16"):
        camelyon16_table(folder, features=tmp_path / "nowhere")
    labels.write_text("test_001,Tumor\ntest_002,unsure\n")
    with pytest.raises(DataError, match=r"reference\.csv: the class of 'test_002' is 'unsure'"):
        camelyon16_table(folder)
    labels.write_text("test_001,Tumor\n")
    with pytest.raises(DataError, match="no label for 128 slides, such as test_002"):
        camelyon16_table(folder)
    labels.unlink()
    with pytest.raises(DataError, match=r"reference\.csv is missing"):
        camelyon16_table(folder)


def test_annotations_are_found_for_slides_of_any_release(folder: Path) -> None:
    annotations = folder / "lesion_annotations"
    annotations.mkdir()
    for name in ("Normal_086", "Test_001", "Test_114"):
        write(annotations / f"{name}.xml", annotation("_0", SQUARE, [0, 1, 2, 3]))
    objects = AnnotationFolder(annotations, origin=lambda image: (0, 0))
    paths = {slide.name: slide.path for slide in camelyon16_table(folder).slides}
    for name in ("tumor_111", "test_001"):
        regions = objects.regions(paths[name], "tumor")
        assert regions is not None
        np.testing.assert_array_equal(regions[0].polygon, SQUARE)
    assert objects.regions(paths["normal_001"], "tumor") == []
    assert objects.regions(paths["test_114"], "tumor") is None  # incomplete annotation


def features(folder: Path, names: list[str]) -> Path:
    """A few features of some slides."""
    for number, name in enumerate(names):
        random = np.random.default_rng(number)
        rows = 12 + number
        with FeatureWriter(folder / f"{name}.h5", patch_size=256, extent=256) as writer:
            places = np.stack([np.arange(rows), np.zeros(rows, np.int64)], axis=1) * 256
            writer.append(random.standard_normal((rows, 24)).astype(np.float32), places)
    return folder


def test_the_table_of_the_command_can_be_trained_on(folder: Path, tmp_path: Path) -> None:
    names = ["normal_001", "Normal_002", "tumor_001", "normal_086", "test_001", "test_003"]
    stored = features(tmp_path / "features", names)
    table = tmp_path / "tables, all" / "slides.csv"
    words = ["data", "camelyon16", str(folder), "--features", str(stored), "--out", str(table)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "4 training slides, 2 test slides" in done.output
    assert "393 of 399 slides are missing" in done.output
    with table.open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["path", "tumor", "split"]
    assert [(Path(p).stem, tumor, split) for p, tumor, split in rows[1:]] == [
        ("normal_001", "0", "train"),
        ("Normal_002", "0", "train"),
        ("tumor_001", "1", "train"),
        ("normal_086", "1", "train"),
        ("test_001", "1", "test"),
        ("test_003", "0", "test"),
    ]
    assert len(read_table(table, tasks=["tumor"])) == 6
    small = ["train.epochs=1", "train.batch=2", "train.warmup=0", "select.keep=3", "encoder.dim=16"]
    settings = [f"data.csv={table}", *small]
    values = read_recipe("camelyon16", scale="paper", settings=settings)
    run = tmp_path / "run"
    train(parse_config(values, source="x"), run, console=Console(quiet=True))
    assert (run / "model.safetensors").is_file()


def test_the_recipe_has_the_settings_of_the_paper() -> None:
    def recipe(*settings: str) -> dict[str, Any]:
        values = read_recipe("camelyon16", scale="paper", settings=list(settings))
        return parse_config(values, source="x").model_dump()

    ips = recipe()
    assert (ips["select"]["keep"], ips["select"]["chunk"]) == (5000, 5000)
    assert ips["select"]["load"] == "sequential"
    assert ips["patches"]["sample"] is None
    assert ips["train"]["lr"] == 0.0003
    deepmil, topmil = recipe("method=deepmil"), recipe("method=topmil")
    assert deepmil["patches"]["sample"] == topmil["patches"]["sample"] == 70_000
    assert deepmil["aggregate"]["head"] == topmil["aggregate"]["head"] == [128, 64]
    assert deepmil["select"]["keep"] is None
    assert topmil["select"]["keep"] == 5000
