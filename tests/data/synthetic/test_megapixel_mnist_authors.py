"""Data sets of the authors' generator: the same pixels and labels as its own reader gives."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ips.config_io import parse_config
from ips.data.synthetic.megapixel_mnist import MegapixelMNIST
from ips.data.synthetic.megapixel_mnist_authors import AuthorsMegapixelMNIST
from ips.errors import DataError, PatchError
from ips.training import build_data
from tests.data.test_object_arrays import Call

WIDTH, HEIGHT, COUNT = 180, 150, 3


def make_image(rng: np.random.Generator) -> np.ndarray:
    """Some grey pixels on black, as 8-bit numbers divided by 255, ``(h, w, 1)``."""
    pixels = rng.integers(1, 256, size=(HEIGHT, WIDTH, 1)) * (rng.random((HEIGHT, WIDTH, 1)) < 0.1)
    return pixels.astype(np.uint8).astype(np.float32) / 255


def make_item(image: np.ndarray, digits: np.ndarray) -> dict[str, Any]:
    """An image with its labels, as the generator stores it."""
    flat = image.ravel()
    places = np.where(flat != 0)
    return {
        "input": (places, flat[places]),
        "majority": np.int64(digits[0]),
        "max": np.max(digits),
        "top": digits[1],
        "multi": np.eye(10)[digits].sum(0).clip(0, 1),
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    parameters = {"n_train": COUNT, "n_test": COUNT, "width": WIDTH, "height": HEIGHT}
    (tmp_path / "parameters.json").write_text(json.dumps(parameters))
    for split in ("train", "test"):
        items = [
            make_item(make_image(rng), rng.integers(10, size=5).astype(np.uint8))
            for _ in range(COUNT)
        ]
        np.save(tmp_path / f"{split}.npy", items)  # type: ignore[arg-type]
    return tmp_path


def as_read_by_the_authors(path: Path, index: int) -> tuple[torch.Tensor, dict[str, Any]]:
    """Patches of 50 px at stride 25, values between 0 and 1."""
    item = np.load(path, allow_pickle=True)[index]
    flat = np.zeros(HEIGHT * WIDTH, dtype=np.float32)
    flat[item["input"][0]] = item["input"][1]
    image = torch.from_numpy(flat.reshape(HEIGHT, WIDTH))
    patches = image.unfold(0, 50, 25).unfold(1, 50, 25).reshape(-1, 1, 50, 50)
    return patches, item


@pytest.mark.parametrize("split", ["train", "test"])
def test_patches_and_labels_are_those_of_the_authors_reader(folder: Path, split: Any) -> None:
    data = AuthorsMegapixelMNIST(folder, split=split, patch_size=50, stride=25)
    assert len(data) == COUNT
    for index in range(COUNT):
        patches, item = as_read_by_the_authors(folder / f"{split}.npy", index)
        source, labels = data[index]
        assert torch.equal(source.read(range(len(source))).float() / 255, patches)
        assert {name: int(labels[name]) for name in ("majority", "max", "top")} == {
            name: int(item[name]) for name in ("majority", "max", "top")
        }
        assert labels["multi"].dtype == torch.float32
        assert labels["multi"].tolist() == item["multi"].tolist()
    with pytest.raises(IndexError, match="there is no image 3"):
        data[COUNT]


def test_items_have_the_form_of_our_own_data_set(folder: Path) -> None:
    ours, theirs = (
        data[0] for data in (MegapixelMNIST(200, count=1), AuthorsMegapixelMNIST(folder))
    )
    assert theirs[0].shape == ours[0].shape
    assert {name: (label.shape, label.dtype) for name, label in theirs[1].items()} == {
        name: (label.shape, label.dtype) for name, label in ours[1].items()
    }
    copy = pickle.loads(pickle.dumps(theirs[0]))
    assert torch.equal(copy.read([0, 3]), theirs[0].read([0, 3]))


def test_the_setting_reads_the_folder(folder: Path) -> None:
    tasks = {"top": {"kind": "multiclass", "classes": 10}}
    patches = {"size": 50, "stride": 25}
    read = {"kind": "megapixel-mnist", "folder": str(folder)}
    values = {"data": read, "patches": patches, "tasks": tasks}
    data = build_data(parse_config(values, source="x"))
    assert isinstance(data.train, AuthorsMegapixelMNIST)
    assert (len(data.train), len(data.train[0][0]), len(data.test)) == (COUNT, 5 * 6, COUNT)


def test_a_file_with_code_is_refused_and_not_run(folder: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    np.save(folder / "train.npy", np.array([{"input": Call(Path.mkdir, ran)}], dtype=object))
    with pytest.raises(DataError, match=r"train\.npy cannot be read \(.*make_mnist\.py") as caught:
        AuthorsMegapixelMNIST(folder)
    assert "\n" not in str(caught.value)
    assert not ran.exists()


def change(folder: Path, **values: Any) -> None:
    """Change the second image of the training set."""
    items = np.load(folder / "train.npy", allow_pickle=True)
    items[1] = {name: value for name, value in (items[1] | values).items() if value is not None}
    np.save(folder / "train.npy", items)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"input": ((np.array([-1]),), np.ones(1))}, "a pixel outside of an image of 27,000"),
        ({"input": ((np.array([27_000]),), np.ones(1))}, "a pixel outside"),
        ({"input": ((np.array([1, 2]),), np.ones(1))}, "do not match"),
        ({"input": ((np.array([1.0]),), np.ones(1))}, "not 64-bit integers"),
        ({"input": ((np.array([1]),), np.full(1, np.nan))}, "not between 0 and 1"),
        ({"input": ((np.array([1]),), np.full(1, 255.0))}, "not between 0 and 1"),
        ({"input": None}, "no 'input'"),
        ({"input": 3}, "cannot be read"),
        ({"top": None}, "no 'top'"),
        ({"top": np.int64(10)}, "not a digit"),
        ({"top": 2.5}, "cannot be read"),
        ({"top": "2"}, "cannot be read"),
        ({"multi": np.ones(9)}, "multi is not 10 zeros and ones"),
        ({"multi": np.full(10, 0.5)}, "multi is not 10 zeros and ones"),
    ],
)
def test_wrong_content_is_refused(folder: Path, values: dict[str, Any], message: str) -> None:
    change(folder, **values)
    with pytest.raises(DataError, match=message) as caught:
        AuthorsMegapixelMNIST(folder)
    assert str(folder / "train.npy") in str(caught.value)


def test_wrong_folders_are_refused(folder: Path) -> None:
    with pytest.raises(PatchError, match="160 px does not fit"):
        AuthorsMegapixelMNIST(folder, patch_size=160)
    np.save(folder / "train.npy", np.array([((), ()), ((), 1)], dtype=object)[:, 0])
    with pytest.raises(DataError, match="an image without labels for four tasks"):
        AuthorsMegapixelMNIST(folder)
    (folder / "train.npy").unlink()
    with pytest.raises(DataError, match=r"train\.npy is missing: make the data set again"):
        AuthorsMegapixelMNIST(folder)
    for text in ("", "[]", "{}", '{"width": "9", "height": 9}', '{"width": 0, "height": 9}'):
        (folder / "parameters.json").write_text(text)
        with pytest.raises(DataError, match=r"parameters\.json"):
            AuthorsMegapixelMNIST(folder)
