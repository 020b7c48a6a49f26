"""The config that `ips init` writes."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image
from rich.progress import Progress
from torch import Tensor

from ips import api
from ips.advice.choices import Choice
from ips.advice.cost import measure
from ips.advice.survey import survey
from ips.advice.write import commented_yaml
from ips.config import PatchesConfig
from ips.config_io import parse_config
from ips.errors import ConfigError, DataError
from ips.patches import PatchSource
from ips.training import build_data
from ips.training.data import open_source
from tests.advice.pictures import COST, draw, store, write_table
from tests.command import Outcome, refused


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same cost on every machine."""
    monkeypatch.setattr("ips.advice.init.measure", lambda *_: COST)
    monkeypatch.setattr("ips.advice.init.available_bytes", lambda: 8 * 2**30)


def test_a_reason_with_a_line_break_stays_a_comment() -> None:
    text = commented_yaml([Choice(("data", "exclude"), ["a\nb.png"], "left out: a\nb.png")], [])
    assert yaml.safe_load(text) == {"data": {"exclude": ["a\nb.png"]}}


def pictures(folder: Path) -> Path:
    """A table of 30 pictures, 25 to 5, of ten patients, with a damaged file and a typing error."""
    rows = ["image,patient,diagnosis"]
    for number in range(30):
        draw(folder / f"scans/{number}.png", seed=number)
        rows.append(f"scans/{number}.png,p{number // 3},{'ok' if number % 6 else 'defect'}")
    (folder / "scans/7.png").write_bytes(b"not a picture")
    rows[3] = rows[3].replace(",ok", ",okk")
    return write_table(folder / "labels.csv", rows)


def test_the_config_uses_the_own_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures(tmp_path)
    monkeypatch.chdir(tmp_path)
    new = api.init("labels.csv")
    assert new.path == Path("labels.yaml")
    assert new.table is None
    text = new.path.read_text()
    assert all(len(line) <= 120 for line in text.splitlines())
    values = yaml.safe_load(text)
    assert values["data"] == {
        "kind": "table",
        "csv": "labels.csv",
        "path": "image",
        "group": "patient",
        "exclude": ["scans/7.png"],
    }
    assert values["tasks"]["diagnosis"] == {
        "kind": "multiclass",
        "classes": 2,
        "names": ["defect", "ok"],
        "metric": "auc",
    }
    assert "lite0  # pre-trained" in text
    assert any("'okk' (1 images) may be meant as 'ok'" in text for text in new.warnings)
    assert any("7.png" in note for note in new.notes)
    config = parse_config(values, source="labels.yaml")
    with pytest.raises(DataError, match=r"line 4.*'okk'.*did you mean 'ok'"):
        build_data(config)
    Path("labels.csv").write_text(Path("labels.csv").read_text().replace("okk", "ok"))
    assert len(build_data(config).table) == 29


def test_a_rare_label_is_kept_or_the_way_to_keep_it_is_named(tmp_path: Path) -> None:
    rows = ["path,kind"]
    for number in range(30):
        draw(tmp_path / f"{number}.png", seed=number)
        kind = {0: "type A", 1: "type A", 2: "rnd", 3: "round"}.get(number, "type B")
        rows.append(f"{number}.png,{'round' if number % 3 == 0 and number > 3 else kind}")
    new = api.init(write_table(tmp_path / "t.csv", rows), out=tmp_path / "c.yaml")
    task = yaml.safe_load(new.path.read_text())["tasks"]["kind"]
    assert task["names"] == ["rnd", "round", "type A", "type B"]
    write_table(tmp_path / "t.csv", [row.replace("rnd", "rouund") for row in rows])
    new = api.init(tmp_path / "t.csv", out=tmp_path / "d.yaml")
    (warning,) = (text for text in new.warnings if "rouund" in text)
    assert "add it to tasks.kind.names and count it in tasks.kind.classes" in warning


def test_the_next_commands_can_be_pasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        draw(tmp_path / f"my data/{'ok' if number % 2 else 'bad'}/{number}.png", seed=number)
    monkeypatch.chdir(tmp_path)
    outcome = Outcome("init", "my data")
    assert outcome.out.splitlines() == ["ips check 'my data.yaml'", "ips train 'my data.yaml'"]


def test_sub_folders_give_a_table_beside_the_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        draw(tmp_path / f"data/{'ok' if number % 2 else 'bad, worn'}/{number}.png", seed=number)
    monkeypatch.chdir(tmp_path)
    outcome = Outcome("init", "data", "--set", "train.epochs=2", "--set", "select.load=lazy")
    assert outcome.code == 0, outcome.err
    assert outcome.out.splitlines() == ["ips check data.yaml", "ips train data.yaml"]
    assert "wrote data.yaml and data-images.csv; look at data.yaml, then run" in outcome.err
    config = parse_config(yaml.safe_load(Path("data.yaml").read_text()), source="data.yaml")
    assert config.train.epochs == 2
    assert config.select.load == "lazy"
    assert config.tasks["label"].names == ["bad, worn", "ok"]
    with Path("data-images.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[0] == {"path": "data/bad, worn/0.png", "label": "bad, worn"}
    assert len(build_data(config).table) == 30
    assert "data.yaml exists already" in refused("init", "data")


@pytest.mark.parametrize("folders", [False, True])
def test_boxes_set_the_size_of_patches(tmp_path: Path, folders: bool) -> None:
    names = [f"{'ok' if number % 2 else 'bad'}/{number}.png" for number in range(12)]
    for number, name in enumerate(names):
        draw(tmp_path / name, seed=number, size=(900, 800))
    rows = [f"{name},{name.partition('/')[0]}" for name in names]
    if not folders:
        write_table(tmp_path / "t.csv", ["file,state", *rows])
    boxes = [f"{name},10,10,110,40" for name in names[:5]]
    write_table(tmp_path / "boxes.csv", ["file,left,top,right,bottom", *boxes, "x.png,0,0,9,9"])
    new = api.init(tmp_path, out=tmp_path / "c.yaml")
    text = new.path.read_text()
    values = yaml.safe_load(text)
    assert values["patches"]["size"] == 160
    assert "for objects of about 100 px, as in boxes.csv; --object PX for others" in text
    assert ("objects" in values["data"]) != folders
    assert any("boxes.csv sets the patch size" in note for note in new.notes) == folders
    by_hand = api.init(tmp_path, out=tmp_path / "d.yaml", object_size=20)
    assert yaml.safe_load(by_hand.path.read_text())["patches"]["size"] == 32


def test_feature_files(tmp_path: Path) -> None:
    for number in range(20):
        store(tmp_path / f"{'tumor' if number % 2 else 'normal'}/{number}.h5", seed=number)
    new = api.init(tmp_path, out=tmp_path / "c.yaml")
    config = parse_config(yaml.safe_load(new.path.read_text()), source="c.yaml")
    assert config.encoder.name == "projector"
    assert config.tasks["label"].names == ["normal", "tumor"]
    assert len(build_data(config).train) == 13


def test_several_labels_in_a_cell(tmp_path: Path) -> None:
    rows = ["path,signs"]
    for number in range(24):
        draw(tmp_path / f"{number}.png", seed=number)
        rows.append(f"{number}.png,{('a', 'a;b', 'b', 'b|c')[number % 4]}")
    new = api.init(write_table(tmp_path / "t.csv", rows), out=tmp_path / "c.yaml")
    task = yaml.safe_load(new.path.read_text())["tasks"]["signs"]
    assert task == {"kind": "multilabel", "classes": 3, "names": ["a", "b", "c"]}


def test_files_that_are_mostly_unreadable_are_one_sentence(tmp_path: Path) -> None:
    for number in range(4):
        path = draw(tmp_path / f"{'ok' if number % 2 else 'bad'}/{number}.png", seed=number)
        path.write_bytes(b"damaged")
    sentence = refused("init", tmp_path, "--out", tmp_path / "c.yaml")
    assert "4 of 4 files cannot be used, the first because: 0.png" in sentence
    assert not list(tmp_path.glob("*.yaml"))
    assert not list(tmp_path.glob("*.csv"))


def test_a_wrong_setting_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    for number in range(4):
        draw(tmp_path / f"{'ok' if number % 2 else 'bad'}/{number}.png", seed=number)
    with pytest.raises(ConfigError, match="unknown key"):
        api.init(tmp_path, out=tmp_path / "c.yaml", settings=["select.kep=3"])
    assert not (tmp_path / "c.yaml").exists()


def test_the_survey_reads_headers(tmp_path: Path) -> None:
    paths = [draw(tmp_path / "a.png", seed=0), draw(tmp_path / "b.png", seed=1, mode="L")]
    paths.append(tmp_path / "c.png")
    paths[2].write_bytes(b"damaged")
    found = survey(paths, Progress(disable=True))
    assert [found.facts[path].channels for path in paths[:2]] == [3, 1]
    assert list(found.unreadable) == [paths[2]]
    assert (found.side, found.kind) == (64, "images")


def test_documents_are_mostly_white(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    for path in paths:
        page = np.full((120, 90, 3), 245, np.uint8)
        page[10:60:4, 10:80] = 20
        Image.fromarray(page).save(path)
    assert survey(paths, Progress(disable=True)).documents
    photos = [draw(tmp_path / f"photo{number}.png", seed=number) for number in range(3)]
    assert not survey(photos, Progress(disable=True)).documents


SMALL: Mapping[str, Any] = {
    "data": {"kind": "table", "csv": "t.csv"},
    "patches": {"size": 16},
    "encoder": {"name": "thin-resnet", "stages": 1, "width": 8},
    "select": {"keep": 4, "chunk": 4},
    "aggregate": {"heads": 2},
    "tasks": {"y": {"kind": "multiclass", "classes": 2}},
}


def test_waiting_for_the_disk_counts_as_time_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]  # which only reading advances, a second per patch and three to open the file

    def open_slowly(path: Path, patches: PatchesConfig) -> PatchSource:
        source = open_source(path, patches)
        read = source.read

        def wait(indices: Tensor) -> Tensor:
            clock[0] += len(indices) + (0 if clock[0] else 3)
            return read(indices)

        monkeypatch.setattr(source, "read", wait)
        return source

    monkeypatch.setattr("ips.advice.cost.open_source", open_slowly)
    monkeypatch.setattr("ips.advice.cost.perf_counter", lambda: clock[0])
    cost = measure(parse_config(SMALL, source="test"), draw(tmp_path / "a.png", seed=0))
    assert (cost.read, cost.open) == (1.0, 3.0)


def test_the_measured_cost_is_plausible(tmp_path: Path) -> None:
    path = draw(tmp_path / "a.png", seed=0)
    cost = measure(parse_config(SMALL, source="test"), path)
    assert cost.patch == 3 * 16 * 16
    assert min(cost.score, cost.learn) > 0
    assert cost.saved > cost.patch
    counts = {"train": 10, "validation": 0, "patches": 24, "keep": 4}
    assert cost.epoch_seconds(**counts) > cost.epoch_seconds(**counts, refresh=0.1) > 0
    eager, lazy = (
        cost.peak_bytes(batch=8, patches=10**6, keep=4, load=load) for load in ("eager", "lazy")
    )
    assert eager > lazy
