"""All commands on a model of patients with several images, and of several magnifications."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import ips
from ips.config_io import write_yaml
from tests.command import Outcome
from tests.images.picture_files import write_svs
from tests.training.own_images import add_column, photographs
from tests.training.tiny import own_values


def patient_table(table: Path) -> Path:
    """Two images of each of six patients, who have one label each."""
    names = [line.split(",")[0] for line in table.read_text().splitlines()[1:]]
    lines = [f"{name},{'high' if i // 2 % 2 else 'low'}" for i, name in enumerate(names)]
    table.write_text("\n".join(["path,grade", *lines]))
    add_column(table, "patient", [f"p{i // 2}" for i in range(len(names))])
    return table


def trained(folder: Path, table: Path, bags: str, **patches: Any) -> Path:
    """The folder of a run, which is called like its bags."""
    values = own_values(table, patches={"size": 16, **patches})
    values["data"] |= {"bags": bags, "test": 0.34}
    write_yaml(values, folder / f"{bags}.yaml")
    outcome = Outcome("train", folder / f"{bags}.yaml", "--run", folder / bags)
    assert outcome.code == 0, outcome.err
    return folder / bags


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of patients, and a run for both kinds of their bags."""
    folder = tmp_path_factory.mktemp("patients")
    table = patient_table(photographs(folder))
    for bags in ("group", "average"):
        trained(folder, table, bags)
    return folder


def predicted(run: Path, *images: Path) -> list[dict[str, Any]]:
    outcome = Outcome("predict", run, *images, "--json")
    assert outcome.code == 0, outcome.err
    found: list[dict[str, Any]] = json.loads(outcome.out)
    return found


@pytest.mark.parametrize("bags", ["group", "average"])
def test_a_patient_has_one_prediction_with_the_attention_of_each_image(
    folder: Path, bags: str
) -> None:
    found = predicted(folder / bags, folder / "labels.csv")
    assert [each["image"] for each in found] == [f"p{i}" for i in range(6)]
    for number, each in enumerate(found):
        assert [part["image"] for part in each["images"]] == [
            f"{2 * number}.png",
            f"{2 * number + 1}.png",
        ]
        assert sum(part["attention"] for part in each["images"]) == pytest.approx(1)
        assert {patch["image"] for patch in each["kept"]} <= {0, 1}
        assert each["patches"] == 8


def test_an_average_is_the_mean_over_the_images(folder: Path) -> None:
    run = folder / "average"
    (patient, *_) = predicted(run, folder / "labels.csv")
    alone = predicted(run, folder / "0.png", folder / "1.png")
    means = np.mean([list(p["tasks"]["grade"]["probabilities"].values()) for p in alone], axis=0)
    found = list(patient["tasks"]["grade"]["probabilities"].values())
    np.testing.assert_allclose(found, means, rtol=1e-5)
    assert all("images" not in each for each in alone)  # a bag of one


def test_folders_are_patients(folder: Path, tmp_path: Path) -> None:
    for name in ("0.png", "1.png"):
        (tmp_path / "all/p0").mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / name, tmp_path / "all/p0" / name)
    (found,) = predicted(folder / "group", tmp_path / "all")
    (same, *_) = predicted(folder / "group", folder / "labels.csv")
    assert found == same


def test_a_csv_has_a_row_for_each_patient_and_is_continued(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    table = folder / "labels.csv"
    command = ("predict", folder / "group", table, "--csv", out, "--labels", table)
    assert Outcome(*command).code == 0
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["path"] for row in rows] == [f"p{i}" for i in range(6)]
    assert [row["truth_grade"] for row in rows] == ["low", "high"] * 3
    assert rows[0]["top_patches"].split(";")[0].split(" ")[0] in ("0.png", "1.png")
    before = out.stat().st_mtime_ns
    again = Outcome(*command)
    assert again.code == 0
    assert "6" in again.out + again.err
    with out.open() as file:
        assert list(csv.DictReader(file)) == rows
    assert out.stat().st_mtime_ns >= before


def test_files_are_explained_per_image(folder: Path, tmp_path: Path) -> None:
    outcome = Outcome("explain", folder / "group", folder / "labels.csv", "--out", tmp_path)
    assert outcome.code == 0, outcome.err
    names = {file.name for file in tmp_path.iterdir()}
    assert {"p0-patches.csv", "p0-overlay.png", "p0--0.geojson", "p0--1-map.tif"} <= names


@pytest.mark.parametrize("bags", ["group", "average"])
def test_scores_and_reports_count_patients(folder: Path, bags: str) -> None:
    run = folder / bags
    assert Outcome("evaluate", run).code == 0
    assert Outcome("report", run).code == 0
    page = (run / "report.html").read_text()
    with (run / "split.csv").open() as file:
        tested = {row["group"] for row in csv.DictReader(file) if row["split"] == "test"}
    with (run / "predictions.csv").open() as file:
        assert {row["image"] for row in csv.DictReader(file)} == tested
    shares = re.findall(r"<li>.*?<span[^>]*>\d+\.png: ([\d.]+) %</span></li>", page, re.DOTALL)
    assert len(shares) == 2 * len(tested)  # both images of each patient, with their share
    assert sum(map(float, shares)) == pytest.approx(100 * len(tested), rel=0.01)
    outcome = Outcome("report", run, "--labels", folder / "labels.csv")
    assert outcome.code == 0, outcome.err


def test_a_list_is_a_bag_in_python(folder: Path) -> None:
    predictor = ips.load(folder / "group")
    whole = predictor.predict([folder / "0.png", folder / "1.png"], name="p0")
    (found, *_) = predicted(folder / "group", folder / "labels.csv")
    assert whole.name == "p0"
    shares = [part["attention"] for part in found["images"]]
    np.testing.assert_allclose(whole.shares, shares, rtol=1e-6)


def test_several_magnifications_are_one_bag(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (96, 96, 3), dtype=np.uint8)
    lines = ["path,grade"]
    for number in range(6):
        write_svs(tmp_path / f"{number}.svs", [pixels])  # at 40x
        lines.append(f"{number}.svs,{number % 2}")
    (tmp_path / "slides.csv").write_text("\n".join(lines))
    run = trained(tmp_path, tmp_path / "slides.csv", "image", magnification=[40, 20])
    (found,) = predicted(run, tmp_path / "0.svs")
    parts = [(p["magnification"], p["patches"], p["patch_size"]) for p in found["images"]]
    assert parts == [(40.0, 36, 16), (20.0, 9, 32)]
    outcome = Outcome("explain", run, tmp_path / "0.svs", "--out", tmp_path / "out")
    assert outcome.code == 0, outcome.err
    assert {"0--40x.geojson", "0--20x-map.tif"} <= {f.name for f in (tmp_path / "out").iterdir()}


def test_several_scales_are_one_bag(tmp_path: Path) -> None:
    lines = ["path,grade"]
    for number in range(6):
        pixels = np.random.default_rng(number).integers(0, 255, (96, 96, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
        lines.append(f"{number}.png,{number % 2}")
    (tmp_path / "photos.csv").write_text("\n".join(lines))
    run = trained(tmp_path, tmp_path / "photos.csv", "image", scale=[1, 0.5])
    (found,) = predicted(run, tmp_path / "0.png")
    parts = [(p["magnification"], p["patches"], p["patch_size"]) for p in found["images"]]
    assert parts == [(1.0, 36, 16), (0.5, 9, 32)]
    outcome = Outcome("explain", run, tmp_path / "0.png", "--out", tmp_path / "out")
    assert outcome.code == 0, outcome.err
    assert {"0--1x.geojson", "0--0.5x-map.tif"} <= {f.name for f in (tmp_path / "out").iterdir()}
    assert Outcome("report", run).code == 0
