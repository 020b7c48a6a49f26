"""`ips report`, from a run folder to a page."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from PIL import Image

from ips import training
from ips.config import METHODS, Config
from ips.config_io import parse_config
from ips.training import RunFolder, build_data, build_model, resolve, save_model
from tests.command import Outcome, refused

TINY: dict[str, Any] = {
    "data": {"kind": "megapixel-mnist", "side": 200, "train": 2, "test": 6},
    "patches": {"size": 50},
    "encoder": {"name": "thin-resnet", "stages": 1, "width": 8, "norm": True},
    "select": {"keep": 4, "chunk": 4},
    "aggregate": {"heads": 4},
    "train": {"batch": 4},
    "tasks": {
        "majority": {"kind": "multiclass", "classes": 10},
        "multi": {"kind": "multilabel", "classes": 10},
    },
}
LOG = "epoch,step,loss,train_majority,train_multi,lr,seconds\n1,3,2.7,0.1,0,0.001,5\n"


def fresh(folder: Path, values: dict[str, Any]) -> Config:
    """A run folder with a model that has learnt nothing, which is all that a report needs."""
    config = parse_config(values, source="test")
    config = resolve(config, build_data(config))
    torch.manual_seed(0)
    folder.mkdir()
    save_model(build_model(config), config, RunFolder(folder).model)
    RunFolder(folder).metrics.write_text(LOG)
    return config


def checked_scores(run: Path) -> str:
    """The page, after a look whether its scores are those of the test."""
    text = (run / "report.html").read_text()
    for task, result in json.loads((run / "test.json").read_text()).items():
        score = result["score"]
        row = rf'<th scope="row">{task}</th><td>[^<]+</td><td><strong>{score:.3f}</strong></td>'
        assert re.search(row, text), (task, score)
    return text


@pytest.fixture
def tests_made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with every test of a model."""
    calls: list[int] = []
    evaluate = training.evaluate

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return evaluate(*args, **kwargs)

    monkeypatch.setattr(training, "evaluate", counted)
    return calls


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_reported(method: str, tmp_path: Path) -> None:
    values = TINY | {"method": method, "readout": None if method == "cnn" else "multi"}
    if method.startswith("deepmil"):
        values["select"] = {"keep": None}
    fresh(tmp_path / "run", values)
    outcome = Outcome("report", tmp_path / "run", "--examples", "1")
    assert outcome.code == 0, outcome.err
    text = checked_scores(tmp_path / "run")
    assert text.count('class="picture"') == 1  # none is right in every task
    assert text.count('class="crops"') == 1


def test_again_nothing_is_tested_until_the_model_changes(
    tmp_path: Path, tests_made: list[int]
) -> None:
    run, page = tmp_path / "run", tmp_path / "pages" / "run.html"
    config = fresh(run, TINY)
    assert Outcome("report", run).code == 0
    assert Outcome("report", run, "--out", page).code == 0
    assert len(tests_made) == 1
    assert page.read_text() == (run / "report.html").read_text()

    torch.manual_seed(1)
    save_model(build_model(config), config, RunFolder(run).model)
    later = RunFolder(run).model.stat().st_mtime + 10
    os.utime(RunFolder(run).model, (later, later))
    assert Outcome("report", run).code == 0
    assert len(tests_made) == 2
    assert page.read_text() != (run / "report.html").read_text()

    (run / "predictions.csv").write_text("torn")
    os.utime(run / "predictions.csv", (later + 10, later + 10))
    assert Outcome("report", run).code == 0
    assert len(tests_made) == 3


def table_run(folder: Path, files: list[str], **values: Any) -> Path:
    """A run on a table of ``files``, half of them for the test."""
    lines = ["path,grade,split"]
    lines += [f'"{name}",{i % 2},{"train" if i < 2 else "test"}' for i, name in enumerate(files)]
    (folder / "labels.csv").write_text("\n".join(lines))
    table = {
        "data": {"kind": "table", "csv": str(folder / "labels.csv")},
        "patches": {"size": 16},
        "tasks": {"grade": {"kind": "binary", "names": ["<script>fine", "<script>ill"]}},
        "readout": "grade",
    }
    fresh(folder / "run", TINY | table | values)
    return folder / "run"


def test_pictures_of_ones_own_with_names_that_look_like_html(tmp_path: Path) -> None:
    files = [f"<script>{i}<b>.png" for i in range(6)]
    for i, name in enumerate(files):
        pixels = np.random.default_rng(i).integers(0, 256, (40, 50, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / name)
    run = table_run(tmp_path, files)
    assert Outcome("report", run).code == 0
    text = checked_scores(run)
    assert "<script>" not in text
    assert "<b>" not in text
    assert "&lt;script&gt;ill" in text
    assert "ROC curve" in text
    assert text.count('class="picture"') == 4
    assert str(tmp_path) in text.split("<details>")[1]
    assert str(tmp_path) not in text.split("<details>")[0]


def test_stored_features_without_their_slides_are_reported_on_a_canvas(tmp_path: Path) -> None:
    files = [f"{i}.h5" for i in range(6)]
    for i, name in enumerate(files):
        with h5py.File(tmp_path / name, "w") as file:
            file["features"] = np.random.default_rng(i).random((5, 12), dtype=np.float32)
            file["coords"] = np.arange(10, dtype=np.int32).reshape(5, 2)
    run = table_run(tmp_path, files, encoder={"name": "projector", "dim": 8})
    assert Outcome("report", run).code == 0
    text = (run / "report.html").read_text()
    assert "was not found: attention is drawn there on a canvas" in text


def test_mistakes_get_one_sentence(tmp_path: Path) -> None:
    assert "no such run folder" in refused("report", tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "empty").mkdir()
    assert "no model.safetensors in it" in refused("report", tmp_path / "empty")
    fresh(tmp_path / "run", TINY)
    assert "ends in .html" in refused("report", tmp_path / "run", "--out", tmp_path / "page.png")
    (tmp_path / "folder.html").mkdir()
    assert "is a folder" in refused("report", tmp_path / "run", "--out", tmp_path / "folder.html")
    assert not (tmp_path / "run" / "predictions.csv").exists()


def test_data_that_are_gone_get_one_sentence(tmp_path: Path) -> None:
    files = [f"data/{i}.png" for i in range(4)]
    (tmp_path / "data").mkdir()
    for name in files:
        Image.fromarray(np.zeros((40, 50, 3), np.uint8)).save(tmp_path / name)
    run = table_run(tmp_path, files)
    shutil.rmtree(tmp_path / "data")
    assert "4 of 4 files do not exist" in refused("report", run)
    (tmp_path / "labels.csv").unlink()
    assert "labels.csv: no such table" in refused("report", run)
