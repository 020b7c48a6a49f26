"""A full disk gives one sentence that names the file, and the run can be resumed.

A limit on the size of files stands for the full disk: a write beyond it fails in the same way.
"""

from __future__ import annotations

import multiprocessing
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from tests.command import Outcome

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs limits on the size of files"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


Words = list[str | Path]


def _limited(limit: int, words: list[str], answer: Connection) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    outcome = Outcome(*words)
    answer.send((outcome.code, outcome.err))


def full_disk(limit: int, *words: str | Path) -> str:
    """Run a command that cannot write more than ``limit`` bytes to a file; returns its sentence."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_limited, args=(limit, [str(w) for w in words], sender))
    process.start()
    sender.close()
    answer: tuple[int, str] = receiver.recv()
    code, err = answer
    process.join()
    assert code == 1, err
    assert "Traceback" not in err
    lines = [line for line in err.splitlines() if line.startswith("ips: ")]
    assert len(lines) == 1, err
    return lines[0].removeprefix("ips: ")


def leftovers(folder: Path) -> list[Path]:
    """Temporary, empty and lock files."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [p for p in files if p.suffix == ".part" or p.name == ".lock" or not p.stat().st_size]


@pytest.mark.parametrize(
    "name",
    ["config.yaml", "checkpoints/last.ckpt", "model.safetensors", "figures/"],
)
def test_train(home: Path, tmp_path: Path, name: str) -> None:
    whole, run = home / "run", tmp_path / "run"
    figures = max(path.stat().st_size for path in (whole / "figures").iterdir())
    size = figures if name == "figures/" else (whole / name).stat().st_size
    others = [path for path in whole.rglob("*") if path.is_file() and path.stat().st_size >= size]
    words = "train", home / "tiny.yaml", "--run", run
    sentence = full_disk(size - 1, *words)
    # The first file of that size is the one that fails.
    assert any(sentence.startswith(f"{run / path.relative_to(whole)}") for path in others) or (
        sentence.startswith(str(run / "tensorboard" / "events.out"))
    ), sentence
    assert "file too large" in sentence
    assert not leftovers(tmp_path)
    assert Outcome(*words, "--resume").code == 0
    ends = [load_file(folder / "model.safetensors") for folder in (run, whole)]
    assert all(torch.equal(ends[0][key], ends[1][key]) for key in ends[1])


def test_pretrain(home: Path, tmp_path: Path) -> None:
    words: Words = ["pretrain", home / "digits.png", "--run", tmp_path / "run", "--patch-size", "8"]
    words += ["--patches-per-slide", "8", "--batch", "4", "--hidden", "8", "--projection", "4"]
    words += ["--encoder", "thin-resnet", "--stages", "1", "--width", "4", "--epochs", "1"]
    last = tmp_path / "run" / "checkpoints" / "last.ckpt"
    assert full_disk(2000, *words).startswith(f"{last}: cannot be read or written (file too large)")
    assert not leftovers(tmp_path)
    assert Outcome(*words, "--resume").code == 0


def test_slides(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 200, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    tissue, features = tmp_path / "tissue", tmp_path / "features"
    slide = tmp_path / "a.png"
    words: Words = ["slides", "tissue", slide, "--out", tissue, "--patch-size", "32"]
    sentence = full_disk(200, *words)
    assert sentence.startswith(str(tissue))
    assert not leftovers(tissue)
    words = ["slides", "features", slide, "--out", features, "--patch-size", "32"]
    words += ["--encoder", "thin-resnet", "--weights", "none"]
    assert full_disk(1000, *words).startswith(f"{features / 'a.h5'}: ")
    assert full_disk(10, *words).startswith(f"{features / 'a.failed'}: ")
    assert not leftovers(features)
    assert Outcome(*words).code == 0


def test_explain_and_report(home: Path, tmp_path: Path) -> None:
    run, image = home / "run", home / "digits.png"
    out = tmp_path / "out"
    assert full_disk(100, "explain", run, image, "--out", out).startswith(f"{out}/digits-patches")
    assert not out.exists()
    page = tmp_path / "report.html"
    assert full_disk(10_000, "report", run, "--out", page).startswith(f"{page}: ")
    assert not leftovers(tmp_path)
    figures = tmp_path / "figures"
    sentence = full_disk(100, "predict", run, image, "--figures", figures)
    assert sentence.startswith(f"{figures / 'digits-attention.png'}: ")
