"""`ips experiment`."""

from __future__ import annotations

from pathlib import Path

from tests.command import Outcome, refused

TINY = ("data.side=200", "data.train=8", "data.test=4", "train.epochs=1")


def test_experiments_are_listed_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    assert "patch-size" in Outcome("experiment").out
    assert "megapixel-mnist" in refused("experiment", "megapixel-mnis", "--out", tmp_path)


def test_an_experiment_prints_its_table_and_names_its_files(tmp_path: Path) -> None:
    settings = [word for setting in TINY for word in ("--set", setting)]
    words = ("--seeds", "1", "--methods", "rps", "--part", "scores", "--out", tmp_path)
    done = Outcome("experiment", "megapixel-mnist", *words, *settings)
    assert done.code == 0, done.err
    assert (tmp_path / "table.md").read_text().strip() in done.err
    assert str(tmp_path / "results.csv") in done.err


def test_the_number_of_steps_is_checked(tmp_path: Path) -> None:
    for steps in ("2", "all"):
        done = Outcome("experiment", "memory-chunk", "--steps", steps, "--out", tmp_path)
        assert done.code == 2
        assert "neither epoch nor a number of at least 3" in " ".join(done.err.split())
