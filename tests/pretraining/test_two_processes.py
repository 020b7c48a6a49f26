"""BYOL in two processes, as with two devices."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fuzz.jobs import differences, digest
from ips.cli import main
from ips.pretraining.train import Learner
from tests.ranks import kill_at, run_ranks, slurm, torchrun

# 20 patches in batches of 4: 5 steps in each of 2 epochs.
TINY = (
    "--encoder thin-resnet --stages 1 --width 4 --patch-size 8 --patches-per-slide 10 --batch 4 "
    "--hidden 8 --projection 4 --epochs 2 --tau 0.9 --devices 2 --checkpoint-minutes 0"
)


def pretrain(images: Path, run: Path, kill: dict[str, Any] | None = None) -> None:
    """The command, in one of the processes."""
    if kill is not None:
        kill_at(Learner, **kill)
    sys.argv = ["ips", "pretrain", str(images), "--run", str(run), "--resume", *TINY.split()]
    main()


def test_a_run_that_is_killed_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    images, random = tmp_path / "images", np.random.default_rng(0)
    images.mkdir()
    for name in ("a", "b"):
        pixels = random.integers(0, 256, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(images / f"{name}.png")
    for ended in run_ranks(torchrun, pretrain, images, tmp_path / "whole"):
        assert ended.code == 0, ended.err
    run = tmp_path / "run"
    first, second = run_ranks(torchrun, pretrain, images, run, {"step": 3, "ranks": [1]})
    assert (first.code, second.code) == (1, -signal.SIGKILL)
    assert first.err.count("another process of this training has ended") == 1
    assert "Traceback" not in first.err
    both = run_ranks(slurm, pretrain, images, run, {"step": 7, "ranks": [0, 1]})
    assert [ended.code for ended in both] == [-signal.SIGKILL] * 2
    for ended in run_ranks(slurm, pretrain, images, run):
        assert ended.code == 0, ended.err
    assert differences(digest(run), digest(tmp_path / "whole")) == []
