"""`ips predict` on folders and tables, with labels, and into a CSV that can be continued."""

from __future__ import annotations

import csv
import json
import multiprocessing
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from ips import api, prediction_file
from ips.predictor import Predictor
from tests.command import Outcome, refused

Rows = list[dict[str, str]]


@pytest.fixture
def folder(home: Path, tmp_path: Path) -> Path:
    """Three images, one of them unreadable, and files that are no images."""
    images = tmp_path / "images"
    images.mkdir()
    for name in ("a.png", "c.png", "a-attention.png"):
        shutil.copy(home / "digits.png", images / name)
    (images / "b.png").write_bytes(b"not a picture")
    (images / "notes.txt").touch()
    return images


@pytest.fixture
def predicted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all images that are predicted from now on."""
    names: list[str] = []
    ordinary = Predictor.predict

    def counting(self: Predictor, image: str, **options: Any) -> Any:
        names.append(Path(image).name)
        return ordinary(self, image, **options)

    monkeypatch.setattr(Predictor, "predict", counting)
    return names


def read(path: Path) -> Rows:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def answers_of(home: Path) -> dict[str, Any]:
    outcome = Outcome("predict", home / "run", home / "digits.png", "--json")
    tasks: dict[str, Any] = json.loads(outcome.out)[0]["tasks"]
    return tasks


def test_a_folder_becomes_a_row_per_image(home: Path, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "new/out.csv"
    outcome = Outcome("predict", home / "run", folder, "--csv", out)
    assert outcome.code == 1
    assert "1 of 3 images could not be predicted" in outcome.err
    a, b, c = read(out)
    assert [Path(row["path"]).name for row in (a, b, c)] == ["a.png", "b.png", "c.png"]
    tasks = answers_of(home)
    assert a["answer_majority"] == tasks["majority"]["answer"]
    assert a["answer_multi"] == ";".join(tasks["multi"]["answer"])
    for name, p in tasks["majority"]["probabilities"].items():
        assert float(a[f"probability_majority_{name}"]) == pytest.approx(p, rel=1e-5)
    assert (a["patches"], a["patch_size"], a["error"]) == ("16", "50", "")
    corners = [tuple(map(int, corner.split())) for corner in a["top_patches"].split(";")]
    assert len(corners) == 4  # select.keep
    assert all(x % 50 == y % 50 == 0 for x, y in corners)
    assert "b.png" in b["error"]
    assert b["answer_majority"] == b["fingerprint"] == ""
    assert "truth_majority" not in a


def test_rows_that_are_there_are_not_predicted_again(
    home: Path, folder: Path, tmp_path: Path, predicted: list[str]
) -> None:
    words = ("predict", home / "run", folder, "--csv", tmp_path / "out.csv")
    Outcome(*words)
    first = (tmp_path / "out.csv").read_bytes()
    assert predicted == ["a.png", "b.png", "b.png", "c.png"]  # a bad file is tried twice
    predicted.clear()
    shutil.copy(folder / "a.png", folder / "b.png")  # repaired
    (folder / "c.png").touch()  # perhaps another picture
    outcome = Outcome(*words)
    assert outcome.code == 0
    assert predicted == ["b.png", "c.png"]
    assert "3 images, 1 of them predicted before" in outcome.err
    assert [row["error"] for row in read(tmp_path / "out.csv")] == ["", "", ""]
    assert (tmp_path / "out.csv").read_bytes().splitlines()[:2] == first.splitlines()[:2]


def test_shares_are_joined(home: Path, folder: Path, tmp_path: Path, predicted: list[str]) -> None:
    shutil.copy(home / "digits.png", folder / "b.png")
    words = ("predict", home / "run", folder, "--csv")
    for shard, found in (("1/2", ["a.png", "c.png"]), ("2/2", ["b.png"])):
        assert Outcome(*words, tmp_path / "out.csv", "--shard", shard).code == 0
        assert predicted == found
        predicted.clear()
    assert sorted(p.name for p in tmp_path.glob("*.csv")) == ["out-1-of-2.csv", "out-2-of-2.csv"]
    outcome = Outcome(*words, tmp_path / "out.csv")
    assert predicted == []
    assert "3 images, 3 of them predicted before" in outcome.err
    assert Outcome(*words, tmp_path / "whole.csv").code == 0
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


def predict_and_die(run: Path, folder: Path, out: Path) -> None:
    """Predict images into a CSV, and end without a word at ``c.png``."""
    ordinary = Predictor.predict

    def dying(self: Predictor, image: str, **options: Any) -> Any:
        if image.endswith("c.png"):
            os._exit(9)
        return ordinary(self, image, **options)

    prediction_file._SECONDS = 0.0
    Predictor.predict = dying  # type: ignore
    api.predict_csv(run, [folder], csv=out)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_killed_command_continues(
    home: Path, folder: Path, tmp_path: Path, predicted: list[str]
) -> None:
    shutil.copy(home / "digits.png", folder / "b.png")
    out, whole = tmp_path / "out.csv", tmp_path / "whole.csv"
    process = multiprocessing.get_context("fork").Process(
        target=predict_and_die, args=(home / "run", folder, out)
    )
    process.start()
    process.join()
    assert process.exitcode == 9
    assert [Path(row["path"]).name for row in read(out)] == ["a.png", "b.png"]
    assert Outcome("predict", home / "run", folder, "--csv", out).code == 0
    assert predicted == ["c.png"]
    assert Outcome("predict", home / "run", folder, "--csv", whole).code == 0
    assert out.read_bytes() == whole.read_bytes()


def test_labels_give_truth_and_right_answers(home: Path, folder: Path, tmp_path: Path) -> None:
    answer = answers_of(home)["majority"]["answer"]
    wrong = str((int(answer) + 1) % 10)
    table = tmp_path / "labels.csv"
    table.write_text(f"path,majority\nimages/a.png,{answer}\nelsewhere/c.png,{wrong}\n")
    words = ("predict", home / "run", folder, "--labels", table)
    outcome = Outcome(*words, "--csv", tmp_path / "out.csv")
    a, b, c = read(tmp_path / "out.csv")
    assert (a["truth_majority"], a["right_majority"]) == (answer, "1")
    assert (b["truth_majority"], b["right_majority"]) == ("", "")
    assert (c["truth_majority"], c["right_majority"]) == (wrong, "0")
    assert a["truth_multi"] == ""
    assert "majority: 1 of 2 right (0.500)" in outcome.err
    outcome = Outcome(*words)
    assert f"{answer} (" in outcome.out
    assert "✓" in outcome.out
    assert f"✗ {wrong}" in outcome.out
    first, second = json.loads(Outcome(*words, "--json").out)
    assert first["tasks"]["majority"]["right"] is True
    assert second["tasks"]["majority"]["truth"] == wrong
    assert "truth" not in first["tasks"]["multi"]


def test_a_table_names_the_images(home: Path, folder: Path) -> None:
    table = folder.parent / "list.csv"
    table.write_text("path,patient\nimages/c.png,x\nimages/a.png,y\n")
    outcome = Outcome("predict", home / "run", table, "--json")
    found = [Path(prediction["image"]) for prediction in json.loads(outcome.out)]
    assert found == [folder / "c.png", folder / "a.png"]
    assert "could not be predicted" not in outcome.err


def test_progress_is_printed_without_a_terminal(home: Path, folder: Path, tmp_path: Path) -> None:
    outcome = Outcome("predict", home / "run", folder, "--csv", tmp_path / "out.csv")
    lines = [line for line in outcome.err.splitlines() if line.startswith("images: ")]
    assert [line.partition(",")[0] for line in lines] == [f"images: {n} of 3" for n in (1, 2, 3)]
    assert lines[0].endswith(" left")


def test_explain_takes_a_folder(home: Path, folder: Path, tmp_path: Path) -> None:
    outcome = Outcome("explain", home / "run", folder, "--out", tmp_path / "out")
    assert outcome.code == 1
    assert {file.name for file in tmp_path.glob("out/*.csv")} == {"a-patches.csv", "c-patches.csv"}


class TestErrors:
    def test_json_and_csv(self, home: Path) -> None:
        words = ("predict", home / "run", home / "digits.png", "--json", "--csv", "out.csv")
        assert refused(*words).endswith("give one of them")

    def test_a_file_of_someone_else(self, home: Path, tmp_path: Path) -> None:
        (tmp_path / "out.csv").write_text("path,grade\na.png,1\n")
        words = ("predict", home / "run", home / "digits.png", "--csv", tmp_path / "out.csv")
        assert "is not a table of predictions: give another file" in refused(*words)
        assert (tmp_path / "out.csv").read_text() == "path,grade\na.png,1\n"

    def test_rows_of_other_images(self, home: Path, folder: Path, tmp_path: Path) -> None:
        out = tmp_path / "out.csv"
        Outcome("predict", home / "run", folder / "a.png", "--csv", out)
        message = refused("predict", home / "run", folder / "c.png", "--csv", out)
        assert "has rows of 1 other images, such as" in message
        assert len(read(out)) == 1

    def test_predictions_of_another_model(self, home: Path, tmp_path: Path) -> None:
        out = tmp_path / "out.csv"
        words = ("predict", home / "run", home / "digits.png", "--csv", out)
        Outcome(*words)
        text = out.read_text().replace("answer_majority", "answer_grade")
        out.write_text(text)
        assert "has predictions of a model with other tasks or classes" in refused(*words)
        assert out.read_text() == text

    def test_a_folder_without_images(self, home: Path, tmp_path: Path) -> None:
        assert "no image in this folder" in refused("predict", home / "run", tmp_path)

    def test_labels_that_do_not_fit(self, home: Path, tmp_path: Path) -> None:
        table = tmp_path / "labels.csv"
        words = ("predict", home / "run", home / "digits.png", "--labels", table)
        assert "no such table" in refused(*words)
        table.write_text("path,grade\ndigits.png,1\n")
        assert "no column for a task of the model: name one of majority" in refused(*words)
        table.write_text("path,majority\nother.png,1\n")
        assert "names none of the 1 images" in refused(*words)
        table.write_text("path,majority\ndigits.png,11\n")
        assert "label '11' of task 'majority' is not one of its 10 classes" in refused(*words)
