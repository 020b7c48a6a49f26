"""Runs are compared on the same images, with a paired bootstrap over images and trainings."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from ips.config_io import override, parse_config
from ips.errors import ConfigError, DataError
from ips.predictions import TaskPredictions, TestPredictions
from ips.report import comparison
from ips.report.comparison import Arm, check_images, compare
from ips.tasks import build_tasks
from ips.training import train
from tests.cli.tiny import TINY
from tests.command import Outcome

TASK = build_tasks(parse_config(TINY, source="test").tasks)["majority"]


def predictions(right: list[bool], *, images: str = "") -> TestPredictions:
    """One multiclass task; the truth is always the first class."""
    count, classes = len(right), len(TASK.class_names)
    labels, p = np.zeros((count, classes), bool), np.zeros((count, classes))
    labels[:, 0] = True
    p[np.arange(count), [0 if ok else 1 for ok in right]] = 1.0
    names = list(images) or [f"{i}.png" for i in range(count)]
    return TestPredictions(names, [TaskPredictions("majority", TASK, labels, p)])


def arm(name: str, *answers: list[bool]) -> Arm:
    runs = tuple(Path(f"{name}-{i}") for i in range(len(answers)))
    return Arm(name, runs, tuple(range(len(answers))), tuple(map(predictions, answers)))


def test_a_paired_difference_is_clearer_than_the_scores() -> None:
    """Where one model is right and the other is not, by image; independent images would not do."""
    base = [i % 2 == 0 for i in range(100)]
    better = [ok or i % 10 == 1 for i, ok in enumerate(base)]
    first, second = comparison._scores([arm("a", base), arm("b", better)], 0)
    assert first.difference is None
    assert first.score.value == 0.5
    assert second.difference is not None
    assert second.difference.value == pytest.approx(0.1)
    assert second.score.low < first.score.high  # the scores alone do not tell
    assert second.difference.low > 0
    assert second.verdict == "higher"


def test_trainings_that_differ_widen_the_interval() -> None:
    half, most = [i % 2 == 0 for i in range(60)], [i % 6 != 0 for i in range(60)]
    (alone,) = comparison._scores([arm("a", half)], 0)
    (both,) = comparison._scores([arm("a", half, most)], 0)
    assert both.score.high - both.score.low > 1.3 * (alone.score.high - alone.score.low)
    assert both.trainings == 2


def test_equal_models_are_not_told_apart() -> None:
    rng = np.random.default_rng(0)
    answers = [(rng.random(80) < 0.7).tolist() for _ in range(4)]
    _, other = comparison._scores([arm("a", *answers[:2]), arm("b", *answers[2:])], 0)
    assert other.verdict == "not clear"


def test_other_images_are_refused() -> None:
    one, two = predictions([True] * 3, images="abc"), predictions([True] * 3, images="abd")
    arms = [Arm("a", (Path("a"),), (0,), (one,)), Arm("b", (Path("b"),), (0,), (two,))]
    with pytest.raises(DataError, match=r"b: has other test images than a, such as d"):
        check_images(arms)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two seeds of one setting, and another setting."""
    folder = tmp_path_factory.mktemp("compare")
    settings = {"a": ["train.seed=0"], "b": ["train.seed=1"], "c": ["select.keep=3"]}
    for name, some in settings.items():
        config = parse_config(override(TINY, some), source="test")
        train(config, folder / name, console=Console(quiet=True))
    return [folder / name for name in settings]


def test_runs_that_differ_in_seeds_are_one_arm(runs: list[Path], tmp_path: Path) -> None:
    outcome = Outcome("compare", *runs, "--out", tmp_path)
    assert outcome.code == 0, outcome.err
    assert "one training, so its seed is not accounted for" in outcome.err
    rows = list(csv.DictReader((tmp_path / "comparison.csv").read_text().splitlines()))
    tasks = parse_config(TINY, source="test").tasks
    assert [row["trainings"] for row in rows] == ["2", "1"] * len(tasks)
    assert rows[1]["arm"] == "select.keep=3"
    assert rows[0]["difference"] == ""
    assert float(rows[1]["difference_low"]) <= float(rows[1]["difference"])
    assert (tmp_path / "curves.png").stat().st_size > 1000


def test_the_scores_are_those_of_the_test(runs: list[Path]) -> None:
    found = compare([runs[0]])
    assert [row.trainings for row in found.scores] == [1] * len(found.scores)
    stored = json.loads((runs[0] / "test.json").read_text())
    for row in found.scores:
        assert row.score.value == pytest.approx(stored[row.task]["score"], abs=1e-6)


def test_a_run_given_twice_is_refused(runs: list[Path]) -> None:
    again = runs[0].parent / "b" / ".." / runs[0].name
    with pytest.raises(ConfigError, match="given twice"):
        compare([*runs, again])


def test_a_folder_that_is_no_run_is_one_sentence(runs: list[Path], tmp_path: Path) -> None:
    shutil.copytree(runs[0], tmp_path / "run")
    (tmp_path / "run/model.safetensors").unlink()
    outcome = Outcome("compare", runs[0], tmp_path / "run")
    assert outcome.code == 1
    assert "no model.safetensors" in outcome.err
