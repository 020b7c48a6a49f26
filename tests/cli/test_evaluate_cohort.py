"""`ips evaluate RUN --data TABLE`: a cohort from elsewhere."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ips.predictor import Predictor
from tests.command import Outcome, refused

COUNT = 6


@pytest.fixture
def table(home: Path, tmp_path: Path) -> Path:
    """Six images of three patients, one of them unreadable, and an image without a label."""
    rng = np.random.default_rng(0)
    lines = ["path,majority,patient"]
    for i in range(COUNT):
        pixels = rng.integers(0, 256, (200, 200), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{i}.png")
        lines.append(f"{i}.png,{i % 3},p{i // 2}")
    (tmp_path / "4.png").write_bytes(b"not a picture")
    shutil.copy(tmp_path / "0.png", tmp_path / "unlabelled.png")
    path = tmp_path / "cohort.csv"
    path.write_text("\n".join([*lines, "unlabelled.png,,p9"]))
    return path


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_predictions_scores_and_a_page_are_written(home: Path, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    outcome = Outcome("evaluate", home / "run", "--data", table, "--out", out)
    assert outcome.code == 1
    assert "1 of 6 images could not be predicted" in outcome.err
    assert "4.png" in outcome.err
    assert "bootstrap over 3 patients or groups. For research" in outcome.err
    rows = read(out / "predictions.csv")
    assert [Path(row["path"]).name for row in rows] == [f"{i}.png" for i in range(COUNT)]
    assert [bool(row["error"]) for row in rows] == [i == 4 for i in range(COUNT)]
    scores: dict[str, Any] = json.loads((out / "scores.json").read_text())
    assert scores["purpose"].startswith("For research")
    assert scores["images"] == 5
    assert scores["intervals"] == "95 %, bootstrap over 3 patients or groups"
    assert [Path(name).name for name in scores["failed"]] == ["4.png"]
    assert list(scores["tasks"]) == ["majority"]  # the table has no labels of the other tasks
    task = scores["tasks"]["majority"]
    right = [int(row["right_majority"]) for row in rows if not row["error"]]
    accuracy = task["scores"]["accuracy"]
    assert accuracy["score"] == pytest.approx(np.mean(right))
    assert accuracy["low"] <= accuracy["score"] <= accuracy["high"]
    assert set(task["roc"]) == {"0", "1", "2"}
    for curve in task["roc"].values():
        assert curve["true_positive_rate"][-1] == curve["false_positive_rate"][-1] == 1
    assert sum(part["predictions"] for part in task["calibration"]["bins"]) == 5
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "bootstrap over 3 patients or groups" in page
    assert "1 of 6 images could not be predicted: 4.png" in page
    assert "for diagnosis" in page


def test_it_continues_with_what_is_missing(
    home: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("evaluate", home / "run", "--data", table, "--out", tmp_path / "out")
    Outcome(*words)
    predicted: list[str] = []
    ordinary = Predictor.predict

    def counting(self: Predictor, image: Any, **options: Any) -> Any:
        if isinstance(image, str):  # examples of the page are open already
            predicted.append(Path(image).name)
        return ordinary(self, image, **options)

    monkeypatch.setattr(Predictor, "predict", counting)
    shutil.copy(tmp_path / "0.png", tmp_path / "4.png")  # repaired
    outcome = Outcome(*words)
    assert outcome.code == 0, outcome.err
    assert predicted == ["4.png"]
    assert json.loads((tmp_path / "out/scores.json").read_text())["images"] == COUNT


def test_without_patients_images_are_resampled(home: Path, table: Path) -> None:
    lines = [line.rpartition(",")[0] for line in table.read_text().splitlines()]
    table.write_text("\n".join(line for line in lines if "4.png" not in line))
    outcome = Outcome("evaluate", home / "run", "--data", table)
    assert outcome.code == 0, outcome.err
    assert "bootstrap over 5 images" in outcome.err
    assert (home / "run/evaluations/cohort/report.html").is_file()


class TestErrors:
    def test_classes_that_the_model_does_not_know(self, home: Path, table: Path) -> None:
        table.write_text(table.read_text().replace("1.png,1,", "1.png,11,"))
        message = refused("evaluate", home / "run", "--data", table)
        assert "label '11' of task 'majority' is not one of its 10 classes" in message
        assert "line 3" in message

    def test_a_patient_is_missing(self, home: Path, table: Path) -> None:
        table.write_text(table.read_text().replace("1.png,1,p0", "1.png,1,"))
        message = refused("evaluate", home / "run", "--data", table)
        assert "line 3: nothing in column 'patient': fill it in" in message

    def test_no_image_can_be_read(self, home: Path, tmp_path: Path) -> None:
        table = tmp_path / "gone.csv"
        table.write_text("path,majority\ngone.png,1\n")
        outcome = Outcome("evaluate", home / "run", "--data", table, "--out", tmp_path / "out")
        assert outcome.code == 1
        assert "none of the 1 images can be predicted" in outcome.err

    def test_a_folder_for_the_own_test(self, home: Path, tmp_path: Path) -> None:
        assert "is for --data" in refused("evaluate", home / "run", "--out", tmp_path)

    def test_the_folder_is_a_file(self, home: Path, table: Path) -> None:
        message = refused("evaluate", home / "run", "--data", table, "--out", table)
        assert message == f"--out {table}: that is a file: give a folder"
