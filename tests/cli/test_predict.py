"""`ips predict`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from ips.predictor import Predictor
from ips.scores import ScoreFile
from tests.command import Outcome, refused


def test_prints_a_table_or_json_and_draws_figures(home: Path, tmp_path: Path) -> None:
    outcome = Outcome("predict", home / "run", home / "digits.png", "--figures", tmp_path)
    assert outcome.code == 0
    assert "majority" in outcome.out
    assert "in multiples of an even share" in " ".join(outcome.err.split())
    assert [file.name for file in tmp_path.iterdir()] == ["digits-attention.png"]
    outcome = Outcome("predict", home / "run", home / "digits.png", "--json")
    answer = json.loads(outcome.out)[0]
    assert answer["patches"] == 16
    assert len(answer["kept"]) == 4
    attention = answer["attention"]
    assert 1 < attention["times_even_share"] == pytest.approx(16 * attention["highest"])
    assert isinstance(attention["nearly_uniform"], bool)
    assert sum(patch["attention"] for patch in answer["kept"]) == pytest.approx(1)
    assert sum(answer["tasks"]["majority"]["probabilities"].values()) == pytest.approx(1)


def test_an_unreadable_image_does_not_stop_the_others(home: Path) -> None:
    outcome = Outcome("predict", home / "run", home / "no.png", home / "digits.png", "--json")
    assert outcome.code == 1
    assert len(json.loads(outcome.out)) == 1
    assert "no.png" in outcome.err


class TestFigures:
    """`ips predict --figures` never overwrites an input image."""

    def test_are_written_beside_the_images(self, home: Path, tmp_path: Path) -> None:
        images = [tmp_path / name for name in ("x-2.png", "x.png", "more/x.png")]
        for image in images:
            image.parent.mkdir(exist_ok=True)
            shutil.copy(home / "digits.png", image)
        before = images[0].read_bytes()
        assert Outcome("predict", home / "run", *images, "--figures", tmp_path).code == 0
        assert all(image.read_bytes() == before for image in images)
        pictures = {file.name for file in tmp_path.glob("*-attention*")}
        assert pictures == {"x-2-attention.png", "x-attention.png", "x-attention-2.png"}

    def test_would_replace_an_image(self, home: Path, tmp_path: Path) -> None:
        images = [tmp_path / name for name in ("x.png", "x-attention.png")]
        for image in images:
            shutil.copy(home / "digits.png", image)
        message = refused("predict", home / "run", *images, "--figures", tmp_path)
        assert "x-attention.png, which is one of the images: choose another folder" in message

    def test_the_output_folder_is_a_file(self, home: Path, tmp_path: Path) -> None:
        (tmp_path / "out").touch()
        words = ("predict", home / "run", home / "digits.png", "--figures", tmp_path / "out")
        assert refused(*words) == f"--figures {tmp_path / 'out'}: that is a file: give a folder"


class TestInterrupted:
    @pytest.mark.parametrize("words", [[], ["--json"]], ids=["table", "json"])
    def test_finished_predictions_are_printed(
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

    def test_scores_of_a_large_image_are_kept(
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


def test_brackets_in_file_names_are_printed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    shutil.copy("digits.png", "scan[old].png")
    assert "scan[old].png" in Outcome("predict", "run", "scan[old].png").out


def test_a_colour_image_becomes_grey_for_a_model_of_grey_images(home: Path, tmp_path: Path) -> None:
    with Image.open(home / "digits.png") as grey:
        grey.convert("RGB").save(tmp_path / "colour.png")
    images = (home / "digits.png", tmp_path / "colour.png")
    grey_one, colour = json.loads(Outcome("predict", home / "run", *images, "--json").out)
    assert colour["tasks"] == grey_one["tasks"]


class TestErrors:
    def test_a_truncated_png(self, home: Path, tmp_path: Path) -> None:
        whole = (home / "digits.png").read_bytes()
        (tmp_path / "cut.png").write_bytes(whole[: len(whole) // 2])
        assert "cut.png" in refused("predict", home / "run", tmp_path / "cut.png")
