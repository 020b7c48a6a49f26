"""A trained run as one object: predictions, class names, and resuming after an interruption."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from torch import Tensor

import ips
from ips import predictor as module
from ips.config_io import parse_config
from ips.patches import ImagePatches
from ips.patches.source import Indices
from ips.training import open_source, train

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
def test_an_interrupted_prediction_resumes(
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
def test_a_read_only_run_still_predicts(
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


def test_progress_is_reported_for_small_images_too(run: Path, picture: Path) -> None:
    progress = Mock()
    ips.load(run).predict(picture, progress=progress)
    assert progress.call_args_list[0].args == (0, 1600)
    assert progress.call_args_list[-1].args == (1600, 1600)


@pytest.mark.parametrize("opened", [False, True])
def test_an_image_is_opened_once(
    run: Path, picture: Path, monkeypatch: pytest.MonkeyPatch, opened: bool
) -> None:
    predictor = ips.load(run)
    counted = Mock(side_effect=open_source)
    monkeypatch.setattr(module, "open_source", counted)
    source = predictor.open(picture) if opened else None
    explanation = predictor.predict(picture, source=source)
    assert counted.call_count == 1
    assert source is None or explanation.source is source


def test_predictions_have_class_names(run: Path, picture: Path) -> None:
    predictor = ips.load(run)
    prediction = predictor.predict(picture)
    answer = predictor.answer("majority", prediction.probabilities["majority"])
    assert answer in list("abcdefghij")
    named = predictor.class_probabilities("majority", prediction.probabilities["majority"])
    assert max(named, key=lambda name: named[name]) == answer
    assert predictor.title(prediction).startswith("large.png · majority: ")
    number = "abcdefghij".index(str(answer))
    right = {"majority": torch.tensor(number), "multi": torch.zeros(10)}
    assert predictor.title(prediction, right).startswith(f"large.png · majority: {answer} ✓")
    wrong = right | {"majority": torch.tensor(9 - number)}
    assert f"majority: {answer} ✗ (truth: {'jihgfedcba'[number]})" in predictor.title(
        prediction, wrong
    )
