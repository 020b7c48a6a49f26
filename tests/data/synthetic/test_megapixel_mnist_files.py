from __future__ import annotations

import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ips.data.split import Split
from ips.data.synthetic.megapixel_mnist import MegapixelMNIST
from ips.data.synthetic.megapixel_mnist_files import (
    SavedMegapixelMNIST,
    has_validation,
    save_megapixel_mnist,
)
from ips.data.synthetic.noise import NoiseStyle
from ips.errors import DataError
from tests.data.synthetic.test_megapixel_mnist import same

SETTINGS: dict[str, Any] = {"side": 200, "train": 6, "test": 3, "seed": 4}  # and 7 noise patterns


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    out = tmp_path / "new" / "mnist"
    save_megapixel_mnist(out, **SETTINGS)
    return out


def test_saved_images_equal_drawn_images(saved: Path) -> None:
    split: Split
    for split, count in (("train", 6), ("test", 3)):
        drawn = MegapixelMNIST(side=200, count=count, split=split, seed=4, stride=25, edge="pad")
        stored = SavedMegapixelMNIST(saved, split=split, stride=25, edge="pad")
        assert len(stored) == count
        stored.set_epoch(3)
        for index in range(count):
            assert same(stored[index], drawn[index])
            everything = range(len(drawn[index][0]))
            assert torch.equal(stored[index][0].read(everything), drawn[index][0].read(everything))
        assert stored[0][0].name == f"mnist/{split}/0"
        with pytest.raises(IndexError, match="there is no image"):
            stored[count]
    assert same(pickle.loads(pickle.dumps(stored))[0], stored[0])


def test_a_data_set_without_noise_can_be_saved(tmp_path: Path) -> None:
    save_megapixel_mnist(tmp_path, side=112, train=1, test=1, noise=0)
    assert same(SavedMegapixelMNIST(tmp_path)[0], MegapixelMNIST(side=112, noise=0)[0])


def test_progress_counts_every_image(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    save_megapixel_mnist(tmp_path, **SETTINGS, progress=lambda done, of: calls.append((done, of)))
    assert calls == [(done, 9) for done in range(1, 10)]


def test_saving_again_completes_missing_files_only(saved: Path) -> None:
    before = {file.name: file.read_bytes() for file in saved.iterdir()}
    assert sorted(before) == ["dataset.json", "test.npz", "train.npz"]
    save_megapixel_mnist(saved, **SETTINGS, noise=7)  # 7 is what a side of 200 px stands for
    assert {file.name: file.read_bytes() for file in saved.iterdir()} == before
    image = SavedMegapixelMNIST(saved, split="test")[1]
    (saved / "test.npz").unlink()
    with pytest.raises(DataError, match=r"test.npz is missing: run 'ips data megapixel-mnist'"):
        SavedMegapixelMNIST(saved, split="test")
    save_megapixel_mnist(saved, **SETTINGS)
    assert same(SavedMegapixelMNIST(saved, split="test")[1], image)


def test_an_interrupted_save_leaves_no_partial_file(tmp_path: Path) -> None:
    def stop(done: int, of: int) -> None:
        if done == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save_megapixel_mnist(tmp_path, **SETTINGS, progress=stop)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["dataset.json", "train.npz"]
    save_megapixel_mnist(tmp_path, **SETTINGS)
    assert len(SavedMegapixelMNIST(tmp_path, split="test")) == 3


def test_a_folder_with_other_content_is_refused(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds a data set with other settings"):
        save_megapixel_mnist(saved, **SETTINGS | {"seed": 5})
    (tmp_path / "thesis.doc").write_text("mine")
    with pytest.raises(DataError, match="is not empty: choose a new or an empty folder"):
        save_megapixel_mnist(tmp_path, **SETTINGS)
    with pytest.raises(DataError, match="cannot be written"):
        save_megapixel_mnist(tmp_path / "thesis.doc", **SETTINGS)


@pytest.mark.parametrize("style", ["lines", "strokes"])
def test_validation_images_and_noise_of_either_style_can_be_saved(
    style: NoiseStyle, tmp_path: Path
) -> None:
    settings = SETTINGS | {"validation": 2, "noise_style": style}
    save_megapixel_mnist(tmp_path, **settings)
    assert has_validation(tmp_path)
    split: Split
    for split, count in (("train", 6), ("validation", 2), ("test", 3)):
        stored = SavedMegapixelMNIST(tmp_path, split=split)
        drawn = MegapixelMNIST(
            side=200, count=count, split=split, seed=4, hold_out=True, noise_style=style
        )
        assert all(same(stored[index], drawn[index]) for index in range(count))
    with pytest.raises(DataError, match="other settings"):
        save_megapixel_mnist(tmp_path, **SETTINGS)


def test_a_data_set_with_the_noise_of_an_earlier_version_is_refused(saved: Path) -> None:
    path = saved / "dataset.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 1}))
    for open_it in (SavedMegapixelMNIST, has_validation):
        with pytest.raises(
            DataError, match=r"made by an earlier version, with other noise .*: make"
        ):
            open_it(saved)


def test_a_folder_without_a_data_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no megapixel MNIST data set"):
        SavedMegapixelMNIST(tmp_path)
    for text in ("[", "[]", "{}", json.dumps({"kind": "megapixel-mnist", "version": 2})):
        (tmp_path / "dataset.json").write_text(text)
        with pytest.raises(DataError, match=r"dataset\.json"):
            SavedMegapixelMNIST(tmp_path)


@pytest.mark.parametrize("change", [{"train": 0}, {"side": 3}, {"noise": -1}, {"test": "2"}])
def test_impossible_settings_are_refused(saved: Path, change: dict[str, Any]) -> None:
    path = saved / "dataset.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DataError, match=r"dataset\.json does not describe"):
        SavedMegapixelMNIST(saved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"digits": np.full((6, 5), 10**6, np.int32)}, "digits is out of range"),
        ({"digit_places": np.full((6, 5, 2), 173, np.int32)}, "digit_places is out of range"),
        ({"noise": np.full((6, 7), 7, np.int32)}, "noise is out of range"),
        ({"noise_places": np.zeros((6, 8, 2), np.int32)}, r"found int32 \(6, 8, 2\)"),
        ({"digit_images": np.array([None])}, "cannot be read"),
    ],
)
def test_damaged_arrays_are_reported(change: dict[str, Any], message: str, saved: Path) -> None:
    path = saved / "train.npz"
    with np.load(path) as stored:
        arrays = dict(stored)
    np.savez(path, **arrays | change)
    with pytest.raises(DataError, match=message) as caught:
        SavedMegapixelMNIST(saved)
    assert str(path) in str(caught.value)


def test_missing_arrays_and_truncated_files_are_reported(saved: Path) -> None:
    path = saved / "test.npz"
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(DataError, match=r"test.npz cannot be read .*: delete it and run"):
        SavedMegapixelMNIST(saved, split="test")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("digits", b"no array")
    with pytest.raises(DataError, match=r"test.npz cannot be read \(the magic string"):
        SavedMegapixelMNIST(saved, split="test")
    np.savez(path, digits=np.zeros((3, 5)))
    with pytest.raises(DataError, match="expected digit_images as uint8"):
        SavedMegapixelMNIST(saved, split="test")


def test_an_unknown_split_of_a_folder_is_refused(saved: Path) -> None:
    with pytest.raises(DataError, match="no split 'dev'"):
        SavedMegapixelMNIST(saved, split="dev")  # type: ignore[arg-type]
