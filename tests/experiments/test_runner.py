"""Experiments that are interrupted, fail in part, or find results of earlier runs."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import torch

from ips.config import Config
from ips.errors import IPSError, RunError
from ips.experiments import run_experiment
from ips.experiments import runner as module
from ips.experiments.arms import Arm
from ips.experiments.efficiency import Cost
from ips.experiments.runner import Plan, read_results
from ips.experiments.tables import Result
from ips.training import RunFolder, train
from tests.experiments.small import SMALL, plan, quiet


def test_an_interrupted_experiment_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Path] = []

    def interrupted(config: object, run: Path, **options: object) -> object:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(run)
        return train(config, run, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_experiment(plan(tmp_path), console=quiet())
    scores, _, _ = (tmp_path / "table.md").read_text().split("\n\n")  # localisation, its caveat
    assert len(scores.splitlines()) == 2 + 2  # two lines so far
    monkeypatch.setattr(module, "train", train)
    before = {run: RunFolder(run).model.stat().st_mtime_ns for run in done}
    paths, failed = run_experiment(plan(tmp_path), console=quiet())
    assert not failed
    assert all(RunFolder(run).model.stat().st_mtime_ns == t for run, t in before.items())
    assert all(path.stat().st_size > 0 for path in paths)

    arms = plan(tmp_path).arms()
    with (tmp_path / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    numbers = [row for row in rows if " " not in row["name"]]
    assert len(numbers) == len(arms) * 2 * 4  # seeds, tasks
    assert {row["name"] for row in rows} >= {"majority pointing", "multi average_precision"}
    assert {row["seed"] for row in rows} == {"0", "1"}
    table, located, caveat = (tmp_path / "table.md").read_text().split("\n\n")
    columns = 4 + table.count("macro F1")  # of tasks with lopsided labels
    assert table.count("±") == len(arms) * columns
    assert len(located.splitlines()) == 2 + len(arms) * 4  # tasks
    assert "not a detection method" in caveat

    # A finished run with other settings is an error, not a result.
    _, failed = run_experiment(plan(tmp_path, settings=["train.lr=0.01"]), console=quiet())
    assert len(failed) == len(arms) * 2
    assert all("was started with other settings (train.lr=" in sentence for sentence in failed)
    assert read_results(plan(tmp_path, settings=["train.lr=0.01"])) == []
    assert len(read_results(plan(tmp_path))) == len(rows)


def test_shares_train_everything_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, int]] = []

    def note(some: Plan, arm: Arm, seed: int, **options: object) -> None:
        done.append((arm.slug, seed))

    monkeypatch.setattr(module, "_train", note)
    counts: list[int] = []
    for number in (1, 2, 3):
        run_experiment(plan(tmp_path, shard=(number, 3)), console=quiet())
        counts.append(len(done) - sum(counts))
    assert max(counts) - min(counts) <= 1
    whole = plan(tmp_path)
    assert sorted(done) == sorted((arm.slug, seed) for arm in whole.arms() for seed in range(2))


def test_a_failing_arm_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def fails(config: Config, run: Path, **options: object) -> object:
        if config.method == "rps":
            raise IPSError("the loss became nan")
        return train(config, run, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "train", fails)
    _, failed = run_experiment(plan(tmp_path, seeds=1), console=quiet())
    assert failed == ["rps M=2 N=16 seed 0: the loss became nan"]
    assert "| topmil |" in (tmp_path / "table.md").read_text()
    monkeypatch.setattr(module, "train", train)
    run_experiment(plan(tmp_path, seeds=1, methods=["rps"]), console=quiet())
    table = (tmp_path / "table.md").read_text()
    assert "| rps |" in table
    assert "| topmil |" in table


def test_an_out_of_memory_error_is_reported_and_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_large(config: Config, **options: object) -> Cost:
        if config.method == "rps":
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 98 GB")
        if config.method == "topmil":
            raise torch.OutOfMemoryError("CUDA out of memory")
        return Cost(1.0, None, 1.0)

    monkeypatch.setattr(module, "measure_cost", too_large)
    costs = plan(tmp_path, scores=False, costs=True)
    _, failed = run_experiment(costs, console=quiet())
    assert len(failed) == 2
    assert all("does not fit into memory" in sentence for sentence in failed)
    monkeypatch.setattr(module, "measure_cost", lambda *args, **options: [][0])
    with pytest.raises(IndexError):  # other errors are not hidden
        run_experiment(plan(tmp_path / "b", scores=False, costs=True), console=quiet())


def test_costs_are_cached_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configs = []

    def once(config: object, *, steps: int) -> Cost:
        configs.append(config)
        return Cost(memory_gb=1.5, select_ms=None, rest_ms=20.0)

    monkeypatch.setattr(module, "measure_cost", once)
    changes: dict[str, Any] = {"scores": False, "costs": True, "methods": ["rps"]}
    for _ in range(2):
        run_experiment(plan(tmp_path, **changes), console=quiet())
    assert len(configs) == 1
    assert "1.50" in (tmp_path / "table.md").read_text()
    run_experiment(plan(tmp_path, **changes, settings=["train.batch=1"]), console=quiet())
    assert len(configs) == 2  # the settings differ


def finished_run(folder: Path) -> tuple[Plan, Arm, Path]:
    """A plan, its first arm, and the folder of a run that only lacks its scores."""
    small = plan(folder)
    arm = SMALL.arms("laptop")[0]
    run = small.run(arm, 0)
    run.mkdir(parents=True)
    module._write_json(run / "asked.json", small.config(arm, 0).model_dump(mode="json"))
    return small, arm, run


@pytest.mark.parametrize(
    "text", [b"{", b"\xff", b"[1]", b'{"majority": "high"}', b'{"majority": {}}', b"[" * 20_000]
)
def test_a_damaged_score_is_named(tmp_path: Path, text: bytes) -> None:
    small, _, run = finished_run(tmp_path)
    assert read_results(small) == []
    (run / "test.json").write_bytes(text)
    with pytest.raises(RunError, match=r"test\.json: .*: delete it and run the same command again"):
        read_results(small)


@pytest.mark.parametrize("score", [0.5, {"metric": "accuracy", "score": 0.5}])
def test_scores_of_earlier_versions_are_read(tmp_path: Path, score: Any) -> None:
    small, arm, run = finished_run(tmp_path)
    module._write_json(run / "test.json", {"majority": score})
    assert read_results(small) == [Result(arm, 0, "majority", 0.5)]


def test_a_damaged_cost_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cost = Cost(memory_gb=1.5, select_ms=None, rest_ms=20.0)
    monkeypatch.setattr(module, "measure_cost", lambda config, *, steps: cost)
    measured = plan(tmp_path, scores=False, costs=True, methods=["rps"])
    run_experiment(measured, console=quiet())
    (path,) = (tmp_path / "costs").iterdir()
    whole, results = path.read_text(), read_results(measured)
    for text in (whole.replace("1.5", '"x"'), whole.replace("memory_gb", "memory"), "[]"):
        path.write_text(text)
        assert read_results(measured) == []
        run_experiment(measured, console=quiet())
        assert read_results(measured) == results
