"""`ips train` and `ips evaluate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

from ips.training.module import Learner
from tests.cli.tiny import TINY
from tests.command import Outcome, refused


def test_train_writes_scores_and_figures(home: Path) -> None:
    run = home / "run"
    scores = json.loads((run / "test.json").read_text())
    assert set(scores) == {"majority", "multi"}
    for name in ("attention.png", "training.png"):
        with Image.open(run / "figures" / name) as picture:
            assert min(picture.size) > 200


def test_evaluate_gives_the_same_scores_again(home: Path) -> None:
    before = (home / "run" / "test.json").read_text()
    outcome = Outcome("evaluate", home / "run")
    assert outcome.code == 0
    assert "majority" in outcome.out
    assert "majority answer" in outcome.out
    assert (home / "run" / "test.json").read_text() == before


def test_the_interval_and_the_majority_answer_are_beside_every_score(home: Path) -> None:
    outcome = Outcome("evaluate", home / "run")
    result = json.loads((home / "run" / "test.json").read_text())["majority"]
    values = result["scores"]["accuracy"]
    row = next(line for line in outcome.out.splitlines() if "majority" in line and "│" in line)
    cells = [cell.strip() for cell in row.split("│")[1:-1]]
    interval = f"{values['low']:.3f} – {values['high']:.3f}"
    score, majority = f"{values['score']:.3f}", f"{values['majority']:.3f}"
    assert cells == ["majority", "accuracy", score, interval, majority]
    # Four images after one epoch: no class can be known.
    assert result["verdict"].startswith("no better than always answering '")
    assert f"majority: {result['verdict']}" in outcome.err


def test_where_attention_is_follows_the_scores(home: Path) -> None:
    outcome = Outcome("evaluate", home / "run")
    stored = json.loads((home / "run" / "test.json").read_text())["majority"]["localisation"]
    values = stored["pointing"]
    row = next(line for line in outcome.out.splitlines() if "top patch on an object" in line)
    cells = [cell.strip() for cell in row.split("│")[1:-1]]
    interval = f"{values['low']:.3f} – {values['high']:.3f}"
    assert cells == ["majority", "top patch on an object", f"{values['score']:.3f}", interval]
    assert "majority, multi: 20 objects on 4 images; a random patch is on" in outcome.err
    assert "it is not a detection method" in outcome.err


def test_other_drawn_images_are_scored_without_a_trace(home: Path) -> None:
    before = (home / "run" / "test.json").read_text()
    outcome = Outcome("evaluate", home / "run", "--set", "data.test=6")
    assert outcome.code == 0, outcome.err
    assert "majority, multi: 30 objects on 6 images" in outcome.err
    assert outcome.err.splitlines()[-1].startswith(f"{home / 'run'}: unchanged")
    assert (home / "run" / "test.json").read_text() == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train.lr=1"], "--set train.lr=1: the model is trained"),
        (["data.kind=table"], "--set data.kind=table: the model is trained"),
        (["data.tset=6"], "unknown key 'data.tset': did you mean 'test'?"),
        (["data.test=6", "--data", "slides.csv"], "--set data.test=6 with --data: leave out one"),
    ],
)
def test_only_settings_of_the_images_can_differ(home: Path, words: list[str], message: str) -> None:
    assert message in refused("evaluate", home / "run", "--set", *words)


def test_scores_are_printed_before_figures_are_drawn(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device", "attention.png")

    monkeypatch.setattr("ips.report.figures.draw_attention", full)
    outcome = Outcome("train", home / "tiny.yaml", "--run", tmp_path / "run")
    assert outcome.code == 1
    assert "majority" in outcome.out
    assert outcome.err.splitlines()[-1] == (
        "ips: attention.png: cannot be read or written (no space left on device): make room on "
        "the disk, or choose another folder"
    )


def test_an_interrupted_test_exits_with_130(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Learner, "test_step", stop)
    outcome = Outcome("evaluate", home / "run")
    assert outcome.code == 130
    assert outcome.err.splitlines()[-1] == "interrupted"
    outcome = Outcome("train", home / "tiny.yaml", "--run", tmp_path / "run")
    assert outcome.code == 130
    assert "run the same command with --resume to continue" in outcome.err


class TestErrors:
    def test_a_typo_in_the_config(self, home: Path) -> None:
        words = ("train", home / "tiny.yaml", "--set", "select.kep=3")
        assert refused(*words).endswith("unknown key 'select.kep': did you mean 'keep'?")

    def test_keep_must_be_positive(self, home: Path) -> None:
        assert "select.keep=0" in refused("train", home / "tiny.yaml", "--set", "select.keep=0")

    def test_a_patch_larger_than_the_image(self, home: Path, tmp_path: Path) -> None:
        words = ("train", home / "tiny.yaml", "--run", tmp_path / "r", "--set", "patches.size=300")
        assert "a patch of 300 px does not fit" in refused(*words)
        assert not (tmp_path / "r").exists()
        Image.new("L", (30, 30)).save(tmp_path / "small.png")
        message = refused("predict", home / "run", tmp_path / "small.png")
        assert "small.png" in message
        assert "50 px" in message

    def test_a_run_folder_without_a_model(self, home: Path, tmp_path: Path) -> None:
        assert "model.safetensors" in refused("predict", tmp_path, home / "digits.png")
        assert "no such run folder" in refused("evaluate", tmp_path / "nowhere")

    def test_a_run_folder_that_is_not_empty(self, home: Path) -> None:
        assert "--resume" in refused("train", home / "tiny.yaml", "--run", home / "run")

    def test_the_run_folder_is_a_file(
        self, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        Path("README.md").touch()
        words = ("train", home / "tiny.yaml", "--run")
        assert refused(*words, "README.md") == "README.md: is a file: give a folder as --run"
        assert refused(*words, "README.md/x") == (
            "README.md/x: cannot be read or written (not a directory): check the path"
        )

    def test_a_task_without_labels(self, home: Path) -> None:
        message = refused("train", home / "tiny.yaml", "--set", "tasks.majorty.classes=10")
        assert message.startswith("tasks.majorty: ")

    def test_warm_up_must_be_shorter_than_training(self, home: Path, tmp_path: Path) -> None:
        (tmp_path / "long.yaml").write_text(
            yaml.safe_dump(TINY | {"train": {"epochs": 9, "batch": 4, "warmup": 2}})
        )
        words = ("train", tmp_path / "long.yaml", "--run", tmp_path / "run", "--set")
        message = refused(*words, "train.epochs=1", "--set", "train.warmup=1")
        assert message == "train.warmup=1 with train.epochs=1: use fewer warm-up epochs than epochs"
        assert refused(*words, "train.warmup=9").startswith("train.warmup=9 with train.epochs=9")
        assert Outcome(*words, "train.epochs=1").code == 0  # the file's gives way

    def test_an_unknown_recipe(self) -> None:
        assert "did you mean megapixel-mnist?" in refused("train", "megapixl-mnist")

    def test_heads_that_do_not_divide_the_embedding(self, home: Path, tmp_path: Path) -> None:
        words = ("train", home / "tiny.yaml", "--run", tmp_path / "r", "--set", "aggregate.heads=3")
        assert "aggregate.heads=3 does not divide the embedding size 8" in refused(*words)
