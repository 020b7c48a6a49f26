from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image
from rich.console import Console

from ips.cli.app import print_table
from ips.data.synthetic.megapixel_mnist import MegapixelMNIST
from ips.predictor import Predictor
from ips.progress import progress_bar
from ips.scores import ScoreFile
from ips.training.module import Learner
from tests.command import Outcome, refused

TINY = {
    "data": {"kind": "megapixel-mnist", "side": 200, "train": 8, "test": 4},
    "patches": {"size": 50},
    "encoder": {"name": "thin-resnet", "stages": 1, "width": 8, "norm": True},
    "select": {"keep": 4, "chunk": 4},
    "aggregate": {"heads": 4, "position": True},
    "train": {"epochs": 1, "batch": 4, "warmup": 0},
    "tasks": {
        "majority": {"kind": "multiclass", "classes": 10},
        "multi": {"kind": "multilabel", "classes": 10},
    },
    "readout": "multi",
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a config, a trained run and a picture."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "tiny.yaml").write_text(yaml.safe_dump(TINY))
    assert Outcome("train", folder / "tiny.yaml", "--run", folder / "run").code == 0
    Image.fromarray(MegapixelMNIST(200, count=1)[0][0].dense()).save(folder / "digits.png")
    return folder


def test_train_tests_and_draws(home: Path) -> None:
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
    assert (home / "run" / "test.json").read_text() == before


def test_predict_prints_a_table_or_json_and_draws(home: Path, tmp_path: Path) -> None:
    outcome = Outcome("predict", home / "run", home / "digits.png", "--figures", tmp_path)
    assert outcome.code == 0
    assert "majority" in outcome.out
    assert [file.name for file in tmp_path.iterdir()] == ["digits-attention.png"]
    outcome = Outcome("predict", home / "run", home / "digits.png", "--json")
    answer = json.loads(outcome.out)[0]
    assert answer["patches"] == 16
    assert len(answer["kept"]) == 4
    assert sum(patch["attention"] for patch in answer["kept"]) == pytest.approx(1)
    assert sum(answer["tasks"]["majority"]["probabilities"].values()) == pytest.approx(1)


def test_one_bad_image_does_not_stop_the_others(home: Path) -> None:
    outcome = Outcome("predict", home / "run", home / "no.png", home / "digits.png", "--json")
    assert outcome.code == 1
    assert len(json.loads(outcome.out)) == 1
    assert "no.png" in outcome.err


class TestPictures:
    """`ips predict --figures` never takes a file that is not its own."""

    def test_beside_the_images(self, home: Path, tmp_path: Path) -> None:
        images = [tmp_path / name for name in ("x-2.png", "x.png", "more/x.png")]
        for image in images:
            image.parent.mkdir(exist_ok=True)
            shutil.copy(home / "digits.png", image)
        before = images[0].read_bytes()
        assert Outcome("predict", home / "run", *images, "--figures", tmp_path).code == 0
        assert all(image.read_bytes() == before for image in images)
        pictures = {file.name for file in tmp_path.glob("*-attention*")}
        assert pictures == {"x-2-attention.png", "x-attention.png", "x-attention-2.png"}

    def test_over_an_image_is_refused(self, home: Path, tmp_path: Path) -> None:
        images = [tmp_path / name for name in ("x.png", "x-attention.png")]
        for image in images:
            shutil.copy(home / "digits.png", image)
        told = refused("predict", home / "run", *images, "--figures", tmp_path)
        assert "x-attention.png, which is one of the images: choose another folder" in told

    def test_a_file_in_the_place_of_the_folder(self, home: Path, tmp_path: Path) -> None:
        (tmp_path / "out").touch()
        words = ("predict", home / "run", home / "digits.png", "--figures", tmp_path / "out")
        assert refused(*words) == f"--figures {tmp_path / 'out'}: that is a file: give a folder"


class TestInterrupted:
    @pytest.mark.parametrize("words", [[], ["--json"]], ids=["table", "json"])
    def test_what_is_answered_is_printed(
        self, home: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
    ) -> None:
        ordinary = Predictor.predict

        def second(self: Predictor, image: str, **options: Any) -> Any:
            if image == "second.png":
                raise KeyboardInterrupt
            return ordinary(self, image, **options)

        monkeypatch.chdir(home)
        shutil.copy("digits.png", "second.png")
        monkeypatch.setattr(Predictor, "predict", second)
        outcome = Outcome("predict", home / "run", "digits.png", "second.png", *words)
        assert outcome.code == 130
        assert outcome.err.splitlines()[-1] == "interrupted"
        assert "digits.png" in outcome.out
        if words:
            assert [answer["image"] for answer in json.loads(outcome.out)] == ["digits.png"]

    def test_a_large_image_says_what_is_kept(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def stop(*args: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("ips.predictor._LARGE", 1)
        monkeypatch.setattr(ScoreFile, "put", stop)
        outcome = Outcome("predict", home / "run", home / "digits.png")
        assert outcome.code == 130
        assert outcome.err.splitlines()[-1] == (
            f"interrupted: the scores so far are in {home / 'run' / 'unfinished'}: "
            "run the same command again to continue"
        )

    def test_while_testing(
        self, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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


def test_scores_are_told_before_anything_is_drawn(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device", "attention.png")

    monkeypatch.setattr("ips.report.figures.draw_attention", full)
    outcome = Outcome("train", home / "tiny.yaml", "--run", tmp_path / "run")
    assert outcome.code == 1
    assert "majority" in outcome.out
    assert outcome.err.splitlines()[-1] == "ips: attention.png: no space left on device"


def test_names_keep_their_brackets(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    shutil.copy("digits.png", "scan[old].png")
    assert "scan[old].png" in Outcome("predict", "run", "scan[old].png").out


def test_names_of_tasks_keep_their_brackets_and_their_ends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(["[/x]", "scan[old]"], [["[/y]", ":100:"], ["folder" * 20 + "end", ""]])
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("[/x]", "scan[old]", "[/y]", ":100:", "end"))


def test_a_progress_bar_takes_words_as_they_are() -> None:
    shown = io.StringIO()
    with progress_bar(Console(file=shown, width=200)) as bar:
        bar.add_task("scan[old].png", total=1, note="[/x]")
    assert "scan[old].png" in shown.getvalue()
    assert "[/x]" in shown.getvalue()


def test_data_on_disk_can_be_trained_on(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "digits"
    sizes = ["--side", "200", "--train", "6", "--test", "4"]
    assert Outcome("data", "megapixel-mnist", folder, *sizes, "--png", "2").code == 0
    assert sorted(p.name for p in (folder / "png").iterdir()) == ["0.png", "1.png"]
    assert Outcome("predict", home / "run", folder / "png" / "1.png").code == 0
    words = ["train", home / "tiny.yaml", "--run", tmp_path / "run"]
    outcome = Outcome(*words, "--set", f"data.folder={folder}")
    assert outcome.code == 0, outcome.err


def test_road_pictures_are_trained_on_as_ones_own(tmp_path: Path) -> None:
    folder = tmp_path / "road"
    made = Outcome("data", "road-signs", folder, "--train", "4", "--test", "4")
    assert made.code == 0, made.err
    table = {
        "data": {"kind": "table", "csv": str(folder / "road.csv")},
        "tasks": {"sign": {"kind": "multiclass", "classes": 4}},
        "readout": "sign",
    }
    (tmp_path / "road.yaml").write_text(yaml.safe_dump(TINY | table))
    trained = Outcome("train", tmp_path / "road.yaml", "--run", tmp_path / "run")
    assert trained.code == 0, trained.err
    assert "no sign" in (tmp_path / "run" / "config.yaml").read_text()


def test_recipes_are_listed_and_shown() -> None:
    assert "megapixel-mnist" in Outcome("recipes").out
    shown = yaml.safe_load(Outcome("recipes", "show", "megapixel-mnist", "--scale", "paper").out)
    assert shown["select"] | {"keep": 100, "chunk": 100} == shown["select"]
    assert shown["data"]["side"] == 1500


class TestMistakes:
    def test_a_typo_in_the_config(self, home: Path) -> None:
        words = ("train", home / "tiny.yaml", "--set", "select.kep=3")
        assert refused(*words).endswith("unknown key 'select.kep': did you mean 'keep'?")

    def test_keep_nothing(self, home: Path) -> None:
        assert "select.keep=0" in refused("train", home / "tiny.yaml", "--set", "select.keep=0")

    def test_a_patch_larger_than_the_image(self, home: Path, tmp_path: Path) -> None:
        words = ("train", home / "tiny.yaml", "--run", tmp_path / "r", "--set", "patches.size=300")
        assert "a patch of 300 px does not fit" in refused(*words)
        assert not (tmp_path / "r").exists()
        Image.new("L", (30, 30)).save(tmp_path / "small.png")
        told = refused("predict", home / "run", tmp_path / "small.png")
        assert "small.png" in told
        assert "50 px" in told

    def test_a_truncated_png(self, home: Path, tmp_path: Path) -> None:
        whole = (home / "digits.png").read_bytes()
        (tmp_path / "cut.png").write_bytes(whole[: len(whole) // 2])
        assert "cut.png" in refused("predict", home / "run", tmp_path / "cut.png")

    def test_the_wrong_number_of_channels(self, home: Path, tmp_path: Path) -> None:
        Image.fromarray(np.zeros((200, 200, 3), np.uint8)).save(tmp_path / "colour.png")
        told = refused("predict", home / "run", tmp_path / "colour.png")
        assert "3 channels" in told
        assert "1 channel" in told

    def test_a_run_folder_without_a_model(self, home: Path, tmp_path: Path) -> None:
        assert "model.safetensors" in refused("predict", tmp_path, home / "digits.png")
        assert "no such run folder" in refused("evaluate", tmp_path / "nowhere")

    def test_a_run_that_is_there(self, home: Path) -> None:
        assert "--resume" in refused("train", home / "tiny.yaml", "--run", home / "run")

    def test_a_run_in_the_place_of_a_file(
        self, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        Path("README.md").touch()
        words = ("train", home / "tiny.yaml", "--run")
        assert refused(*words, "README.md") == "README.md: is a file: give a folder as --run"
        assert refused(*words, "README.md/x") == "README.md/x: not a directory"

    def test_tasks_that_the_data_do_not_have(self, home: Path) -> None:
        told = refused("train", home / "tiny.yaml", "--set", "tasks.majorty.classes=10")
        assert told.startswith("tasks.majorty: ")

    def test_a_warm_up_as_long_as_the_run(self, home: Path, tmp_path: Path) -> None:
        (tmp_path / "long.yaml").write_text(
            yaml.safe_dump(TINY | {"train": {"epochs": 9, "batch": 4, "warmup": 2}})
        )
        words = ("train", tmp_path / "long.yaml", "--run", tmp_path / "run", "--set")
        told = refused(*words, "train.epochs=1", "--set", "train.warmup=1")
        assert told == "train.warmup=1 with train.epochs=1: take fewer warm-up epochs than epochs"
        assert refused(*words, "train.warmup=9").startswith("train.warmup=9 with train.epochs=9")
        assert Outcome(*words, "train.epochs=1").code == 0  # the file's gives way

    def test_an_unknown_recipe(self) -> None:
        assert "did you mean megapixel-mnist?" in refused("train", "megapixl-mnist")

    def test_heads_that_do_not_divide_the_embedding(self, home: Path, tmp_path: Path) -> None:
        words = ("train", home / "tiny.yaml", "--run", tmp_path / "r", "--set", "aggregate.heads=3")
        assert "aggregate.heads=3 does not divide the embedding size 8" in refused(*words)


def test_debug_shows_the_traceback_wherever_it_stands() -> None:
    words = [sys.executable, "-c", "from ips.cli import main; main()", "evaluate", "nowhere"]
    plain = subprocess.run(words, capture_output=True, text=True)
    debug = subprocess.run([*words, "--debug"], capture_output=True, text=True)
    assert plain.returncode != 0
    assert "Traceback" not in plain.stderr
    assert debug.returncode != 0
    assert "Traceback" in debug.stderr
