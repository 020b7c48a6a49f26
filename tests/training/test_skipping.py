"""Training without the files that cannot be read, and warnings of images in two splits."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

from ips import api
from ips.config_io import parse_config, read_yaml, write_yaml
from ips.data.split import Split
from ips.errors import ConfigError, DataError
from ips.progress import progress_bar
from ips.training import RunFolder
from ips.training.leaks import divided_names, equal_images
from ips.training.skipping import skip_bad_files
from tests.training.own_images import save_noise
from tests.training.tiny import own_values


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A config, its table and ten pictures of two grades; three cannot be used."""
    lines = ["path,grade,split"]
    for number in range(10):
        save_noise(tmp_path / f"{number}.png", seed=number)
        split = ("train", "train", "train", "val", "test")[number // 2]
        lines.append(f"{number}.png,{'high' if number % 2 else 'low'},{split}")
    damaged = tmp_path / "2.png"
    damaged.write_bytes(damaged.read_bytes()[:2000])
    Image.new("RGB", (8, 8)).save(tmp_path / "9.png")
    lines.append("gone.png,low,test")
    (tmp_path / "table.csv").write_text("\n".join(lines))
    write_yaml(own_values(tmp_path / "table.csv"), tmp_path / "c.yaml")
    return tmp_path / "c.yaml"


def test_bad_files_are_left_out_and_listed(config: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.png"):
        api.train(config, run=tmp_path / "strict")
    shown = Console(file=io.StringIO(), width=200)
    run = tmp_path / "run"
    api.train(config, run=run, skip_errors=True, console=shown)
    assert "left out 3 files that cannot be used" in shown.file.getvalue()  # type: ignore[attr-defined]
    with (run / "skipped.csv").open() as file:
        reasons = {row["path"]: row["reason"] for row in csv.DictReader(file)}
    assert list(reasons) == ["2.png", "9.png", "gone.png"]
    assert "does not fit into an image of 8 x 8 px" in reasons["9.png"]
    assert "does not exist" in reasons["gone.png"]
    with (run / "split.csv").open() as file:
        assert not {row["path"] for row in csv.DictReader(file)} & set(reasons)
    api.evaluate(run)  # leaves them out, too
    api.train(config, run=run, skip_errors=True, resume=True)


def test_files_are_checked_again_if_no_epoch_was_finished(config: Path, tmp_path: Path) -> None:
    settings = parse_config(read_yaml(config), source="test")
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    first = skip_bad_files(settings, folder, progress_bar(None))
    write_yaml(first.model_dump(mode="json"), folder.config)  # killed in the first epoch
    save_noise(tmp_path / "2.png", seed=2)
    again = skip_bad_files(settings, folder, progress_bar(None))
    assert again.data.exclude == ["9.png", "gone.png"]  # type: ignore[union-attr]


def test_a_resumed_cross_validation_leaves_out_the_same_files(config: Path, tmp_path: Path) -> None:
    settings = parse_config(read_yaml(config), source="test")
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    first = skip_bad_files(settings, folder, progress_bar(None))
    fold = RunFolder(folder.path / "fold-1")
    fold.checkpoint.parent.mkdir(parents=True)
    fold.checkpoint.touch()
    write_yaml(first.model_dump(mode="json"), fold.config)
    save_noise(tmp_path / "2.png", seed=2)  # repaired
    again = skip_bad_files(settings, folder, progress_bar(None))
    assert again.data.exclude == ["2.png", "9.png", "gone.png"]  # type: ignore[union-attr]


def test_only_files_of_a_table_can_be_left_out(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="only files of a table can be left out"):
        api.train("megapixel-mnist", run=tmp_path / "run", skip_errors=True)


def test_equal_files_in_two_splits_are_named(config: Path, tmp_path: Path) -> None:
    for name in ("2", "9"):
        (tmp_path / f"{name}.png").write_bytes((tmp_path / "0.png").read_bytes())
    table = tmp_path / "table.csv"
    table.write_text(table.read_text().replace("\ngone.png,low,test", ""))
    shown = Console(file=io.StringIO(), width=200)
    api.train(config, run=tmp_path / "run", console=shown)
    text = shown.file.getvalue()  # type: ignore[attr-defined]
    assert "0.png (train) and 2.png (train) and 9.png (test) have the same content" in text


def test_equal_images_ignores_slides_inside_one_file(tmp_path: Path) -> None:
    (tmp_path / "a.h5").write_bytes(b"x")
    assert equal_images([Path(f"{tmp_path / 'a.h5'}::{name}") for name in "xy"]) == []


def test_the_number_of_groups_is_named_if_there_are_several() -> None:
    names = ["a.png", "b.png", "a_copy.png", "b_copy.png"]
    both = divided_names(names, ["train", "train", "test", "test"])
    assert both is not None
    assert "by their names (2 such groups in all), so" in both
    one = divided_names(names, ["train", "train", "test", "train"])
    assert one is not None
    assert "by their names, so scores may be too good" in one


@pytest.mark.parametrize(
    ("names", "first"),
    [
        (["a.png", "b.png", "a_copy.png", "c.png"], "a.png (train) and a_copy.png (test)"),
        (["a_crop1.png", "b.png", "a_crop2.png", "c.png"], "a_crop1.png (train) and a_crop2"),
        (["p1_1.png", "p2_1.png", "p3-1.png", "p1_2.png", "p2_2.png", "p3-2.png"], "p1_1.png"),
        (["a.jpg", "b.jpg", "a (1).jpg", "c.jpg"], "a.jpg (train) and a (1).jpg (test)"),
        (["a - Copy (2).jpg", "b.jpg", "a.jpg", "c.jpg"], "a - Copy (2).jpg (train) and a.jpg"),
        ([f"photo ({i}).jpg" for i in range(1, 9)], None),
        ([f"{grade}/tile_{i:03}.png" for i in range(4) for grade in ("ok", "bad")], None),
        (["ok/a_tile1.png", "ok/b.png", "ok/a_tile2.png", "ok/c.png"], "ok/a_tile1.png (train)"),
        (["IMG_001.png", "IMG_002.png", "IMG_003.png", "IMG_004.png"], None),
        (["ok/001.png", "ok/002.png", "bad/001.png", "bad/002.png"], None),
        (["00012.jpg", "00013.jpg", "00014.jpg", "00015.jpg"], None),
    ],
)
def test_names_of_one_scene_in_two_splits(names: list[str], first: str | None) -> None:
    half = len(names) // 2
    splits: list[Split] = ["train" if i < half else "test" for i in range(len(names))]
    found = divided_names(names, splits)
    assert found is None if first is None else found is not None and found.startswith(first)
    assert divided_names(names, ["train"] * len(names)) is None
