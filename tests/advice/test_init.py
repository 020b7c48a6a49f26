"""The config that `ips init` writes."""

from __future__ import annotations

import csv
import math
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
from ips.advice.cost import Cost, measure
from ips.advice.found import FoundData, FoundRow
from ips.advice.propose import Proposal, propose
from ips.advice.survey import FileFacts, Survey, survey
from ips.advice.write import commented_yaml
from ips.config import PatchesConfig
from ips.config_io import parse_config
from ips.errors import ConfigError, DataError
from ips.patches import PatchSource
from ips.training import build_data
from ips.training.data import open_source
from tests.advice.pictures import draw, store, write_table
from tests.command import Outcome, refused

COST = Cost(open=0.03, read=1e-5, score=1e-3, learn=1e-2, saved=10**6, patch=12_288, model=10**8)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same cost on every machine."""
    monkeypatch.setattr("ips.advice.init.measure", lambda *_: COST)
    monkeypatch.setattr("ips.advice.init.available_bytes", lambda: 8 * 2**30)


def proposal(
    facts: FileFacts, *, count: int = 120, cost: Cost = COST, minutes: float = 30, **options: Any
) -> tuple[dict[str, Any], Proposal]:
    paths = [Path(f"{number}.png") for number in range(count)]
    rows = [FoundRow(path, {"y": "ab"[n % 2]}) for n, path in enumerate(paths)]
    found = Survey(dict.fromkeys(paths, facts), {})
    result = propose(
        FoundData(rows=rows, tasks=["y"]),
        found,
        [],
        lambda _: cost,
        minutes=minutes,
        memory=8 * 2**30,
        **options,
    )
    return {".".join(choice.key): choice.value for choice in result.choices}, result


def photo(width: int, height: int) -> FileFacts:
    return FileFacts("images", width, height, 3)


def test_a_reason_with_a_line_break_stays_a_comment() -> None:
    text = commented_yaml([Choice(("data", "exclude"), ["a\nb.png"], "left out: a\nb.png")], [])
    assert yaml.safe_load(text) == {"data": {"exclude": ["a\nb.png"]}}


class TestPropose:
    def test_photographs(self) -> None:
        values, result = proposal(photo(2000, 1500))
        assert values["patches.size"] == 128
        assert values["patches.stride"] == 96
        assert values["encoder.name"] == "efficientnet-lite0"
        assert values["select.load"] == "eager"
        assert 8 <= values["select.keep"] <= 32
        assert values["select.chunk"] >= values["select.keep"]
        assert values["train.batch"] == 4
        assert all(choice.reason for choice in result.choices if choice.key[0] != "tasks")
        assert any("per epoch" in fact and "GB" in fact for fact in result.facts)

    def test_the_training_fits_into_the_time(self) -> None:
        for cost in (1e-4, 1e-3, 1e-2):
            slow = Cost(0.03, 1e-5, cost, 10 * cost, 10**6, 12_288, 10**8)
            values, result = proposal(photo(4000, 3000), cost=slow)
            assert values["train.epochs"] >= 5
            assert not result.warnings
        values, result = proposal(photo(4000, 3000), count=5000, cost=slow)
        assert values["patches.scale"] < 1
        assert "start with fewer images, or use a GPU" in result.warnings[0]

    def test_all_patches_are_looked_at_more_rarely_before_the_resolution_is_lowered(self) -> None:
        slow = Cost(0.03, 1e-5, 2.2e-3, 1e-2, 10**6, 12_288, 10**8)
        values, _ = proposal(photo(4000, 3000), count=160, cost=slow)
        assert values["select.every"] == 4
        assert "patches.scale" not in values
        assert "select.every" not in proposal(photo(800, 600), cost=slow)[0]

    def test_few_images_are_read_at_a_lower_resolution_to_have_time_for_more_epochs(self) -> None:
        slow = Cost(0.03, 1e-5, 5e-3, 1e-2, 10**6, 12_288, 10**8)
        values, _ = proposal(photo(4000, 3000), count=160, cost=slow)
        steps = math.ceil(102 / values["train.batch"])
        assert values["train.epochs"] * steps >= 250
        assert values["patches.scale"] == 0.667

    def test_the_size_of_objects_sets_the_patch(self) -> None:
        assert proposal(photo(2000, 1500), object_size=40)[0]["patches.size"] == 64
        values, _ = proposal(photo(2000, 1500), object_size=400)
        assert values["patches.size"] == 128
        assert values["patches.scale"] == pytest.approx(128 / 600, rel=0.01)

    def test_the_reason_for_the_size_says_how_to_change_it(self) -> None:
        _, result = proposal(photo(2000, 1500))
        (reason,) = (c.reason for c in result.choices if c.key == ("patches", "size"))
        assert "if objects are larger or smaller, run init again with --object PX" in reason

    def test_the_reason_for_a_scale_is_the_object_or_the_time(self) -> None:
        def reason(result: Proposal) -> str:
            return next(c.reason for c in result.choices if c.key == ("patches", "scale"))

        values, result = proposal(photo(2000, 1500), object_size=400)
        assert reason(result).endswith("of the full size, so that objects fit into patches")
        slow = Cost(0.03, 1e-5, 1e-2, 1e-1, 10**6, 12_288, 10**8)
        values, result = proposal(photo(16_000, 12_000), object_size=400, cost=slow)
        assert values["patches.scale"] < 0.2
        assert reason(result).endswith("or training would take too long")

    @pytest.mark.parametrize(
        ("size", "level", "side"), [(150, 0, 224), (300, 1, 128), (900, 2, 96)]
    )
    def test_large_objects_on_slides_that_are_read_at_a_level(
        self, size: int, level: int, side: int
    ) -> None:
        slide = FileFacts("slides", 8000, 6000, 3, downsamples=(1.0, 4.0, 16.0))
        values, _ = proposal(slide, object_size=size)
        assert (values["patches.level"], values["patches.size"]) == (level, side)

    def test_files_that_differ_in_their_channels_become_rgb(self) -> None:
        paths = [Path(f"{number}.tif") for number in range(40)]
        rows = [FoundRow(path, {"y": "ab"[n % 2]}) for n, path in enumerate(paths)]
        facts = dict.fromkeys(paths, photo(800, 600))
        facts[paths[0]] = FileFacts("images", 800, 600, 4)
        result = propose(
            FoundData(rows=rows, tasks=["y"]),
            Survey(facts, {}),
            [],
            lambda _: COST,
            minutes=30,
            memory=None,
        )
        (choice,) = (c for c in result.choices if c.key == ("patches", "channels"))
        assert choice.value == "rgb"
        assert "3 or 4 channels" in choice.reason

    def test_slides_are_read_piece_by_piece_at_a_resolution_that_is_affordable(self) -> None:
        levels = (1.0, 4.0, 16.0)
        slide = FileFacts("slides", 80_000, 60_000, 3, mpp=0.25, downsamples=levels)
        values, _ = proposal(slide)
        assert values["select.load"] == "lazy"
        assert values["patches.mpp"] >= 2
        unknown = FileFacts("slides", 80_000, 60_000, 3, downsamples=levels)
        values, _ = proposal(unknown)
        assert values["patches.level"] == 2

    def test_time_and_memory_are_those_of_the_settings_that_are_given(self) -> None:
        def facts(*overrides: str) -> str:
            return proposal(photo(2000, 1500), overrides=overrides)[1].facts[-1]

        assert "4 min in all" in facts("train.epochs=5")
        assert "48 min in all" in facts("train.epochs=60")
        assert facts("train.batch=32") != facts("train.batch=4")  # memory
        values, result = proposal(photo(2000, 1500), overrides=["patches.size=64"])
        assert (values["patches.size"], values["patches.stride"]) == (64, 48)
        assert result.facts[1] == "about 1,302 patches per image"
        assert result.facts[-1] == facts("patches.size=64", "patches.stride=48")
        assert "patches.scale" not in proposal(photo(2000, 1500), overrides=["patches.mpp=1"])[0]

    def test_a_whole_section_can_be_given(self) -> None:
        values, _ = proposal(photo(800, 600), overrides=["augment={kind: none}", "augment.blur=0"])
        assert values["augment"] == {"kind": "none", "blur": 0}
        assert "augment.kind" not in values
        tasks = "tasks={y: {kind: multiclass, classes: 2}}"
        assert proposal(photo(800, 600), overrides=[tasks])[0]["tasks"]["y"]["classes"] == 2

    def test_features(self) -> None:
        values, _ = proposal(FileFacts("features", 0, 0, 1024, patches=9000))
        assert values["encoder.name"] == "projector"
        assert values["select.keep"] == 256
        assert not any(key.startswith("patches.") for key in values)

    def test_memory_limits_the_batch(self) -> None:
        heavy = Cost(0.03, 1e-5, 1e-3, 1e-2, 10**9, 12_288, 10**8)
        values, _ = proposal(photo(800, 600), count=900, cost=heavy)
        assert values["train.batch"] < 16


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
    assert cost.epoch_seconds(**counts) > cost.epoch_seconds(**counts, every=4) > 0
    eager, lazy = (
        cost.peak_bytes(batch=8, patches=10**6, keep=4, load=load) for load in ("eager", "lazy")
    )
    assert eager > lazy
