"""A trained run as one object: answers, names, and a look that can be interrupted."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from torch import Tensor

import ips
from ips import predictor as module
from ips.config import parse_config
from ips.patches import ImagePatches
from ips.patches.source import Indices
from ips.scores import ScoreFile
from ips.training import train

CONFIG = {
    "data": {"kind": "megapixel-mnist", "side": 200, "train": 4, "test": 4},
    "patches": {"size": 20},
    "encoder": {"name": "thin-resnet", "stages": 1, "width": 8},
    "select": {"keep": 4, "chunk": 4},
    "aggregate": {"heads": 4},
    "train": {"epochs": 1, "batch": 4, "warmup": 0},
    "tasks": {
        "majority": {"kind": "multiclass", "classes": 10, "names": list("abcdefghij")},
        "multi": {"kind": "multilabel", "classes": 10},
    },
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("predictor") / "run"
    train(parse_config(CONFIG, source="test"), folder, console=Console(quiet=True))
    return folder


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    """Many more patches than a micro-batch holds: 40 x 40 of 20 px."""
    pixels = np.random.default_rng(0).integers(0, 256, (800, 800), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "large.png")
    return tmp_path / "large.png"


@pytest.fixture
def everything_is_large() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_LARGE", 1)
        yield


class PowerCutError(Exception):
    pass


@pytest.mark.usefixtures("everything_is_large")
def test_an_interrupted_look_goes_on_where_it_was(
    run: Path, picture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ips.load(run).predict(picture)
    read = ImagePatches.read
    seen: list[int] = []

    def failing(self: ImagePatches, indices: Indices) -> Tensor:
        if max(indices) > 1000:
            raise PowerCutError
        return read(self, indices)

    with monkeypatch.context() as patch:
        patch.setattr(ImagePatches, "read", failing)
        with pytest.raises(PowerCutError):
            ips.load(run).predict(picture)
    assert len(list((run / "unfinished").iterdir())) == 1

    def counting(self: ImagePatches, indices: Indices) -> Tensor:
        seen.extend(int(i) for i in indices)
        return read(self, indices)

    heard: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(ImagePatches, "read", counting)
        resumed = ips.load(run).predict(picture, progress=lambda done, total: heard.append(done))
    assert len(seen) < 1600 - 500
    assert heard == sorted(heard)
    assert heard[-1] == 1600
    assert torch.equal(whole.indices, resumed.indices)
    torch.testing.assert_close(whole.logits["majority"], resumed.logits["majority"])
    assert not list((run / "unfinished").iterdir())


@pytest.mark.usefixtures("everything_is_large")
@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("call", ["posix_fallocate", "unlink", "mkdir"])
def test_a_run_that_cannot_be_written_to_still_answers(
    run: Path, picture: Path, monkeypatch: pytest.MonkeyPatch, number: int, call: str
) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise OSError(number, os.strerror(number))

    predictor = ips.load(run)
    shutil.rmtree(run / "unfinished", ignore_errors=True)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse, raising=False)
        assert len(predictor.predict(picture).indices) == 4
    assert bool(list(run.glob("unfinished/*"))) == (call == "unlink")
    shutil.rmtree(run / "unfinished", ignore_errors=True)


def test_a_score_file_is_as_large_without_fallocate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    monkeypatch.setattr("ips.scores._BLOCK", 7)
    table = ScoreFile(tmp_path / "a.scores", 5, 2)
    assert (tmp_path / "a.scores").read_bytes() == bytes(8 + 4 * 5 * 2)
    table.add(torch.ones(3, 2))
    assert ScoreFile(tmp_path / "a.scores", 5, 2).done == 3


def test_progress_is_heard_for_small_images_too(run: Path, picture: Path) -> None:
    heard: list[int] = []
    ips.load(run).predict(picture, progress=lambda done, total: heard.append(done))
    assert heard[-1] == 1600


def test_answers_have_names(run: Path, picture: Path) -> None:
    predictor = ips.load(run)
    prediction = predictor.predict(picture)
    answer = predictor.answer("majority", prediction.probabilities["majority"])
    assert answer in list("abcdefghij")
    named = predictor.class_probabilities("majority", prediction.probabilities["majority"])
    assert max(named, key=lambda name: named[name]) == answer
    assert predictor.title(prediction).startswith("large.png: majority ")
    number = "abcdefghij".index(str(answer))
    right = {"majority": torch.tensor(number), "multi": torch.zeros(10)}
    assert predictor.title(prediction, right).startswith(f"large.png: majority {answer} (correct)")
    wrong = right | {"majority": torch.tensor(9 - number)}
    assert f"{answer} (true: {'jihgfedcba'[number]})" in predictor.title(prediction, wrong)


def test_a_score_file_of_another_size_is_begun_anew(tmp_path: Path) -> None:
    table = ScoreFile(tmp_path / "a.scores", 5, 2)
    table.add(torch.ones(3, 2))
    assert ScoreFile(tmp_path / "a.scores", 5, 2).done == 3
    assert ScoreFile(tmp_path / "a.scores", 6, 2).done == 0
