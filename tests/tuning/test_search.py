from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ips import api, training
from ips.config import Config
from ips.config_io import override, parse_config, read_yaml, write_yaml
from ips.errors import ConfigError, IPSError
from ips.training import Data
from ips.tuning import Tuning, search, tune
from tests.command import Outcome, refused
from tests.training.tiny import TINY

VALUES = override(TINY, ["data.validation=4", "data.train=4", "train.epochs=1", "train.warmup=0"])
OVER = ["select.keep=2,4,8", "train.lr=0.0001..0.1"]


def configure(settings: Sequence[str]) -> Config:
    return parse_config(override(VALUES, settings), source="test")


def score(config: Config, run: Path, *args: object) -> float:
    """Stands in for a training: more patches are better."""
    assert config.select.keep is not None
    return config.select.keep / 10


def look(folder: Path, *, trials: int = 4, **options: object) -> Tuning:
    return tune(configure, folder, name="test", over=OVER, trials=trials, **options)  # type: ignore[arg-type]


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[object], None]:
    return lambda score: monkeypatch.setattr(search, "_score", score)


def test_the_best_settings_are_written(tmp_path: Path, stand_in: Callable[[object], None]) -> None:
    stand_in(score)
    found = look(tmp_path, trials=8)
    assert len(found.trials) == 8
    assert found.trials[0].settings["select.keep"] == "4"  # those of the config itself
    assert found.best is not None
    assert found.best.score == max(trial.score or 0 for trial in found.trials)
    assert len({trial.settings["select.keep"] for trial in found.trials}) > 1
    best = parse_config(read_yaml(tmp_path / "best.yaml"), source="best")
    assert str(best.select.keep) == found.best.settings["select.keep"]
    assert 0.0001 <= float(found.best.settings["train.lr"]) <= 0.1
    with (tmp_path / "trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["score"]) for row in rows] == [trial.score for trial in found.trials]
    assert (tmp_path / "tune.png").stat().st_size > 1000


def test_an_interrupted_search_goes_on(tmp_path: Path, stand_in: Callable[[object], None]) -> None:
    runs: list[tuple[str, int | None, float | None]] = []

    def interrupted(config: Config, run: Path, *args: object) -> float:
        runs.append((run.name, config.select.keep, config.train.lr))
        if len(runs) == 2:
            raise KeyboardInterrupt
        return score(config, run)

    stand_in(interrupted)
    with pytest.raises(KeyboardInterrupt):
        look(tmp_path, trials=3)
    found = look(tmp_path, trials=3)
    assert runs[1] == runs[2]  # the same run with the same settings, not a new one
    assert [name for name, *_ in runs] == ["trial-1", "trial-2", "trial-2", "trial-3"]
    assert len(found.trials) == 3
    assert len(look(tmp_path, trials=3).trials) == 3
    assert len(runs) == 4  # nothing is left to do


def test_runs_that_fail_are_listed(tmp_path: Path, stand_in: Callable[[object], None]) -> None:
    def sometimes(config: Config, run: Path, *args: object) -> float:
        if run.name != "trial-2":
            raise IPSError("the loss became nan")
        return 0.5

    stand_in(sometimes)
    found = look(tmp_path / "some", trials=3)
    assert [trial.score for trial in found.trials] == [None, 0.5, None]
    assert found.trials[0].problem == "the loss became nan"
    with pytest.raises(IPSError, match="every run failed, the last because: the loss became nan"):
        look(tmp_path / "all", trials=1)


def test_no_run_begins_after_the_time(tmp_path: Path, stand_in: Callable[[object], None]) -> None:
    stand_in(score)
    assert look(tmp_path, hours=0.0).trials == []
    assert len(look(tmp_path, hours=1.0, trials=2).trials) == 2


def test_a_search_trains_without_test_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, train, seen = tmp_path / "own.yaml", training.train, []

    def watched(*args: object, data: Data, **options: object) -> object:
        seen.append(len(data.test))
        return train(*args, data=data, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(training, "train", watched)
    write_yaml(VALUES, config)
    words = ["--trials", "1", "--device", "cpu", "--over", "select.keep=2,4"]
    done = Outcome("tune", config, "--out", tmp_path / "out", *words)
    assert done.code == 0, done.err
    assert f"ips train {tmp_path / 'out/best.yaml'}" in done.err.replace("\n", "")
    assert seen == [0]
    assert not (tmp_path / "out/trial-1/test.json").exists()
    assert api.read_config(str(tmp_path / "out/best.yaml"), None, []).select.keep == 4


@pytest.mark.parametrize(
    ("over", "said"),
    [
        ("select.keep", "expected KEY=LOW..HIGH or KEY=A,B,C"),
        ("select.keep=4", "at least two values"),
        ("select.keep=4..2", "the first number must be below the second"),
        ("select.keep=a..b", "not a range of numbers"),
        ("select.kept=2,4", "unknown key 'select.kept': did you mean 'keep'?"),
        ("select.keep=0,4", "select.keep=0: input should be greater than or equal to 1"),
    ],
)
def test_mistakes(tmp_path: Path, over: str, said: str) -> None:
    config = tmp_path / "own.yaml"
    write_yaml(VALUES, config)
    assert said in refused("tune", config, "--out", tmp_path / "out", "--over", over)


def test_there_must_be_validation_images(tmp_path: Path) -> None:
    write_yaml(TINY, tmp_path / "own.yaml")
    words = refused("tune", tmp_path / "own.yaml", "--out", tmp_path / "out")
    assert "has no validation images to choose settings by" in words


def test_a_folder_has_one_search(tmp_path: Path, stand_in: Callable[[object], None]) -> None:
    stand_in(score)
    look(tmp_path, trials=1)
    with pytest.raises(ConfigError, match="has a search over other settings"):
        tune(configure, tmp_path, name="test", over=["select.keep=2,4"], trials=2)
