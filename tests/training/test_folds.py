"""Cross-validation: folds, out-of-fold predictions, the summary, and all models as one."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml
from rich.console import Console

import ips
from ips import api
from ips.config import Config
from ips.config_io import parse_config
from ips.errors import ConfigError, DataError, RunError
from ips.predictor import Ensemble
from ips.training import build_data
from ips.training.folds import fold_configs
from tests.command import Outcome
from tests.training.own_images import save_noise
from tests.training.tiny import own_values

PATIENTS = 9


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A config for eighteen pictures of nine patients, three of whom are for testing."""
    lines = ["path,grade,patient,split"]
    for number in range(2 * PATIENTS):
        patient = number // 2
        save_noise(tmp_path / f"{number}.png", seed=number)
        split = "test" if patient > 5 else "validation" if patient == 5 else "train"
        lines.append(f"{number}.png,{'high' if patient % 2 else 'low'},p{patient},{split}")
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    values = own_values(tmp_path / "labels.csv", train={"epochs": 1, "batch": 4, "warmup": 0})
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def config(table: Path) -> Config:
    return parse_config(yaml.safe_load(table.read_text()), source="test")


def files_of(run: Path) -> dict[str, bytes]:
    names = ["summary.json", "out_of_fold.csv", "predictions.csv"]
    return {name: (run / name).read_bytes() for name in names}


def test_every_image_is_in_one_fold_and_no_patient_in_two(table: Path) -> None:
    held_out: Counter[str] = Counter()
    for member, _ in fold_configs(config(table), table.parent, folds=3):
        splits: dict[str, set[str]] = {}
        for path, group, split in build_data(member).table:
            splits.setdefault(group, set()).add(split)
            held_out[path] += split == "validation"
        assert all(len(found) == 1 for found in splits.values())
        assert [g for g, found in splits.items() if found == {"test"}] == ["p6", "p7", "p8"]
    assert sorted(held_out.values()) == [0] * 6 + [1] * 12


def test_classes_are_spread_over_the_folds(table: Path) -> None:
    for member, _ in fold_configs(config(table), table.parent, folds=3):
        labels = build_data(member).labels["validation"]
        assert Counter(int(label["grade"]) for label in labels) == {0: 2, 1: 2}


def test_a_repetition_has_other_folds_and_the_same_test_images(table: Path) -> None:
    members = fold_configs(config(table), table.parent, folds=2, repeats=6)
    assert [run.name for _, run in members[:3]] == ["fold-1", "fold-2", "repeat-2-fold-1"]
    tables = [build_data(member).table for member, _ in members]
    assert len({tuple(rows) for rows in tables}) > 2
    assert len({tuple(r for r in rows if r[2] == "test") for rows in tables}) == 1


def test_more_folds_than_patients(table: Path) -> None:
    member, _ = fold_configs(config(table), table.parent, folds=7)[0]
    with pytest.raises(DataError, match="6 patients or groups cannot be divided into 7 parts"):
        build_data(member)


def test_weights_of_lopsided_classes_are_announced_in_every_fold(
    table: Path, tmp_path: Path
) -> None:
    labels = tmp_path / "labels.csv"
    rows = [line.split(",") for line in labels.read_text().splitlines()]
    for row in rows[1:]:
        row[1] = "high" if row[2] in ("p0", "p8") else "low"
    labels.write_text("\n".join(",".join(row) for row in rows))
    text = Console(file=io.StringIO(), width=200)
    api.train_folds(
        table, run=tmp_path / "run", folds=2, settings=["data.group=none"], console=text
    )
    said = text.file.getvalue()  # type: ignore[attr-defined]
    assert said.count("of high: rare classes count more in the loss") == 2


def test_only_tables_have_folds(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.kind is megapixel-mnist, and only a table"):
        api.train_folds("megapixel-mnist", run=tmp_path / "run", folds=2)


def test_a_cross_validation(table: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    scores = api.train_folds(table, run=run, folds=3)
    with (run / "out_of_fold.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(dict.fromkeys(row["image"] for row in rows)) == [f"{i}.png" for i in range(12)]
    truth = {row["image"]: row["class"] for row in rows if row["truth"] == "1"}
    assert truth["2.png"] == "high"
    assert truth["4.png"] == "low"
    summary = json.loads((run / "summary.json").read_text())["grade"]
    assert len(summary["folds"]) == 3
    assert summary["mean"] == pytest.approx(np.mean(summary["folds"]), abs=1e-6)
    assert summary["deviation"] == pytest.approx(np.std(summary["folds"], ddof=1), abs=1e-6)
    assert summary["out_of_fold"]["images"] == 12
    assert summary["test"]["images"] == 6
    assert scores["grade"].out_of_fold.scores[0].value == summary["out_of_fold"]["score"]

    # Each image was predicted by the model that never saw it.
    fold = ips.load(run / "fold-2")
    with (run / "fold-2" / "split.csv").open(newline="") as file:
        split = {row["path"]: row["split"] for row in csv.DictReader(file)}
    image = next(path for path, name in split.items() if name == "validation")
    high = next(r for r in rows if r["image"] == image and r["class"] == "high")
    found = fold.predict(table.parent / image).class_probabilities["grade"]["high"]
    assert float(high["probability"]) == pytest.approx(found, abs=1e-5)

    # All models as one predict what the table says.
    together = ips.load(run)
    assert isinstance(together, Ensemble)
    answer = together.predict(table.parent / "14.png")
    with (run / "predictions.csv").open(newline="") as file:
        row = next(r for r in csv.DictReader(file) if (r["image"], r["class"]) == ("14.png", "low"))
    expected = float(row["probability"])
    assert answer.class_probabilities["grade"]["low"] == pytest.approx(expected, abs=1e-5)
    members = [ips.load(run / f"fold-{i}").predict(table.parent / "14.png") for i in (1, 2, 3)]
    assert set(answer.indices.tolist()) == {i for m in members for i in m.indices.tolist()}
    assert float(answer.attention.sum()) == pytest.approx(1)
    assert answer.attention.tolist() == sorted(answer.attention.tolist(), reverse=True)
    mean = np.mean([m.all_attention["grade"] for m in members], axis=0)
    np.testing.assert_allclose(answer.all_attention["grade"], mean)
    np.testing.assert_array_equal(answer.coords, answer.source.coords[answer.indices])

    # Without --resume nothing is overwritten; with it nothing is trained again.
    before = files_of(run)
    with pytest.raises(RunError, match="already holds a run"):
        api.train_folds(table, run=run, folds=3)
    with pytest.raises(RunError, match=r"data\.folds=3"):
        api.train_folds(table, run=run, folds=2, resume=True)
    (run / "summary.json").unlink()
    with pytest.raises(RunError, match="cross-validation is unfinished"):
        ips.load(run)
    api.train_folds(table, run=run, folds=3, resume=True)
    assert files_of(run) == before
    with pytest.raises(RunError, match="it is a cross-validation: give one of its runs, such as"):
        api.evaluate(run)


def test_an_interrupted_cross_validation_ends_with_the_same_summary(
    table: Path, tmp_path: Path
) -> None:
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    api.train_folds(table, run=whole, folds=2)

    def stop_at(stop: int) -> Callable[[str, int, int], None]:
        def on_fold(name: str, number: int, count: int) -> None:
            if number == stop:
                raise KeyboardInterrupt

        return on_fold

    with pytest.raises(KeyboardInterrupt):
        api.train_folds(table, run=resumed, folds=2, on_fold=stop_at(2))
    assert not (resumed / "summary.json").exists()
    outcome = Outcome("train", table, "--run", resumed, "--folds", "2", "--resume")
    assert outcome.code == 0, outcome.err
    assert files_of(resumed) == files_of(whole)
    assert "mean of 2 folds" in outcome.out
    assert "fold-2 (2 of 2)" in outcome.err
