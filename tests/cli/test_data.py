"""`ips data`: the data sets can be trained on."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.cli.tiny import TINY
from tests.command import Outcome
from tests.data.test_gtsdb import write_gtsdb


def test_megapixel_mnist_can_be_trained_on(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "digits"
    sizes = ["--side", "200", "--train", "6", "--test", "4"]
    assert Outcome("data", "megapixel-mnist", folder, *sizes, "--png", "2").code == 0
    assert sorted(p.name for p in (folder / "png").iterdir()) == ["0.png", "1.png"]
    assert Outcome("predict", home / "run", folder / "png" / "1.png").code == 0
    words = "--run", tmp_path / "run", "--set", f"data.folder={folder}"
    outcome = Outcome("train", home / "tiny.yaml", *words)
    assert outcome.code == 0, outcome.err


def test_road_signs_can_be_trained_on_as_a_table(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("method", ["ips", "cnn"])
def test_gtsdb_can_be_trained_on_with_its_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    source = write_gtsdb(tmp_path / "source", monkeypatch, suffix=".jpg")
    monkeypatch.chdir(tmp_path)
    made = Outcome("data", "gtsdb", "data/gtsdb", "--from", source)
    assert made.code == 0, made.err
    settings = [f"method={method}", "train.epochs=1", "train.warmup=0"]
    settings += ["encoder.stages=2", "encoder.freeze=1"]
    words = [word for setting in settings for word in ("--set", setting)]
    trained = Outcome("train", "gtsdb", "--run", "run", *words)
    assert trained.code == 0, trained.err
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert config["tasks"]["limit"]["names"][0] == "none"
    assert (config["encoder"]["name"], config["train"]["result"]) == ("efficientnet-lite0", "best")
    assert Path(config["data"]["objects"]).name == "boxes.csv"
    assert config["augment"]["flips"] == "none"  # of digits
    assert (config["augment"]["kind"] == "none") == (method == "cnn")
