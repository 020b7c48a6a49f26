"""The script that compares trainings that score some patches again with those that score all."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from types import ModuleType

import pytest
from PIL import Image

from tests.bench.scripts import load_script


@pytest.fixture
def script() -> ModuleType:
    return load_script("refresh_accuracy")


def write_run(folder: Path, *, score: float, scored: str, seconds: float) -> None:
    """The files of a training of two epochs."""
    folder.mkdir(parents=True)
    (folder / "test.json").write_text(json.dumps({"sign": {"score": score}}))
    head, share = (
        "epoch,validation_sign,seconds",
        ",scored,recall,recall_attention" if scored else "",
    )
    lines = [f"{head}{share}", f"1,0.5,{seconds},{scored}", f"2,{score},{seconds},{scored}"]
    (folder / "metrics.csv").write_text("\n".join(line.rstrip(",") for line in lines) + "\n")


def test_arms_are_compared_by_seed(script: ModuleType, tmp_path: Path) -> None:
    pairs = []
    for seed, (whole, some) in enumerate([(0.90, 0.92), (0.94, 0.92), (0.92, 0.98)]):
        write_run(tmp_path / f"all-patches-{seed}", score=whole, scored="", seconds=90)
        write_run(tmp_path / f"some-again-{seed}", score=some, scored="0.2,0.6,0.97", seconds=30)
        pairs.append(
            tuple(script.read(tmp_path, arm, seed) for arm in ("all patches", "some again"))
        )
    text = script.table(pairs)
    assert "| 0 | 0.900 | 0.920 | 3.0 | 1.0 | 3.0 |" in text
    assert "sign: some again minus all patches: +0.0200 (-0.0794 to +0.1194)" in text
    runs = [run for pair in pairs for run in pair]
    script.write_epochs(runs, tmp_path / "refresh.csv")
    with (tmp_path / "refresh.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12
    assert rows[3] == {
        "arm": "some again",
        "seed": "0",
        "epoch": "2",
        "minutes": "1",
        "validation": "0.92",
        "scored": "0.2",
        "recall": "0.6",
        "recall_attention": "0.97",
    }
    assert rows[0]["scored"] == "1"
    script.draw(runs, tmp_path / "refresh.png")
    with Image.open(tmp_path / "refresh.png") as picture:
        assert picture.width > 1000
