from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from ips.config import Config
from ips.config_io import parse_config
from ips.data.synthetic.megapixel_mnist_files import save_megapixel_mnist
from ips.recipes import read_recipe
from ips.training import build_data, evaluate, train
from ips.training.data import Data
from tests.training.test_run import interrupt, metrics, weights
from tests.training.tiny import tiny

CONSOLE = Console(quiet=True)


def test_validation_images_are_scored_after_every_epoch(tmp_path: Path) -> None:
    config = tiny("data.validation=6")
    model = train(config, tmp_path, console=CONSOLE)
    rows = metrics(tmp_path)
    assert [set(row) >= {"validation_majority", "validation_multi"} for row in rows] == [True] * 3
    # The last row is the score of the final model.
    data = build_data(config)
    assert data.validation is not None
    as_test = Data(train=data.train, test=data.validation)
    scores = evaluate(tmp_path, model=model, data=as_test, console=CONSOLE).scores
    assert {task: float(rows[-1][f"validation_{task}"]) for task in scores} == pytest.approx(
        scores, abs=1e-5
    )


def test_without_validation_images_there_is_no_such_column(tmp_path: Path) -> None:
    assert build_data(tiny()).validation is None
    train(tiny("train.epochs=1"), tmp_path, console=CONSOLE)
    assert not [name for name in metrics(tmp_path)[0] if name.startswith("validation")]


@pytest.mark.parametrize("load", ["eager", "lazy"])
def test_scoring_validation_images_does_not_change_the_training(tmp_path: Path, load: str) -> None:
    def signs(count: int) -> Config:
        values = tiny(f"select.load={load}", "encoder.freeze_norm=true").model_dump()
        values["data"] = {"kind": "road-signs", "width": 320, "height": 240, "train": 8, "test": 1}
        values["data"]["validation"] = count
        values["tasks"] = {"sign": {"kind": "multiclass", "classes": 4}}
        return parse_config(values | {"readout": "sign"}, source="test")

    plain = weights(train(signs(0), tmp_path / "plain", console=CONSOLE).net)
    validated = weights(train(signs(5), tmp_path / "validated", console=CONSOLE).net)
    assert torch.equal(plain, validated)


def test_a_resumed_run_with_validation_ends_as_an_undisturbed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny("data.validation=3")
    whole = weights(train(config, tmp_path / "whole", console=CONSOLE).net)
    interrupt(monkeypatch, lambda: train(config, tmp_path / "cut", console=CONSOLE))
    resumed = weights(train(config, tmp_path / "cut", resume=True, console=CONSOLE).net)
    assert torch.equal(whole, resumed)
    columns = [name for name in metrics(tmp_path / "cut")[0] if name.startswith("validation")]
    assert columns
    for column in columns:
        both = [[row[column] for row in metrics(tmp_path / name)] for name in ("whole", "cut")]
        assert both[0] == both[1]


def test_rows_of_a_table_may_be_for_validation(tmp_path: Path) -> None:
    splits = ["train"] * 4 + ["Val", "validation", "test", "test"]
    lines = ["path,grade,split"]
    for number, split in enumerate(splits):
        pixels = np.full((50, 50), number, np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
        lines.append(f"{number}.png,{number % 2},{split}")
    (tmp_path / "table.csv").write_text("\n".join(lines))
    values = tiny().model_dump() | {
        "data": {"kind": "table", "csv": tmp_path / "table.csv"},
        "tasks": {"grade": {"kind": "binary"}},
        "readout": None,
    }
    data = build_data(parse_config(values, source="test"))
    assert data.validation is not None
    assert [len(part) for part in (data.train, data.validation, data.test)] == [4, 2, 2]
    assert data.validation[1][0].read([0]).max() == 5


def test_a_saved_data_set_brings_its_validation_images(tmp_path: Path) -> None:
    save_megapixel_mnist(tmp_path / "with", side=200, train=2, validation=3, test=1)
    save_megapixel_mnist(tmp_path / "without", side=200, train=2, test=1)
    data = build_data(tiny(f"data.folder={tmp_path / 'with'}"))
    assert data.validation is not None
    assert len(data.validation) == 3
    assert build_data(tiny(f"data.folder={tmp_path / 'without'}")).validation is None


def test_recipes_validate_at_the_scale_of_a_laptop_only() -> None:
    for name in ("megapixel-mnist", "road-signs"):
        assert read_recipe(name, scale="laptop")["data"]["validation"] > 0
    for name in ("megapixel-mnist", "traffic-signs"):
        assert not read_recipe(name, scale="paper")["data"].get("validation")


def test_a_log_file_gets_a_line_per_epoch(tmp_path: Path) -> None:
    log = io.StringIO()
    train(tiny("data.validation=3"), tmp_path, console=Console(file=log, force_terminal=False))
    lines = [line for line in log.getvalue().splitlines() if line.startswith("epoch")]
    assert [line.split(":")[0] for line in lines] == ["epoch 1/3", "epoch 2/3", "epoch 3/3"]
    score = float(metrics(tmp_path)[-1]["validation_majority"])
    assert f"validation_majority {score:.3f}" in lines[-1]
    assert [line.endswith(" left") for line in lines] == [True, True, False]


def test_a_terminal_gets_no_such_line(tmp_path: Path) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True)
    train(tiny("train.epochs=1"), tmp_path, console=console)
    assert "epoch 1/1: loss" not in screen.getvalue()
