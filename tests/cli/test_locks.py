"""Two processes on one folder: every command that does not share its folder refuses to write."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ips.errors import FolderInUseError
from ips.training import train
from tests.command import Outcome, refused
from tests.holder import holder
from tests.training.tiny import tiny


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


WRITERS = {
    "train": "train {home}/tiny.yaml --run {out}",
    "predict": "predict {home}/run {home}/digits.png --figures {out}",
    "explain": "explain {home}/run {home}/digits.png --out {out}",
    "pretrain": "pretrain {home}/digits.png --run {out} --patch-size 8 --epochs 1 --batch 2",
    "experiment": "experiment megapixel-mnist --seeds 1 --methods ips --out {out}",
    "data mnist": "data mnist {out} --mirror file:///nowhere",
    "data mnist --from": "data mnist {out} --from {home}",
    "data megapixel-mnist": "data megapixel-mnist {out} --side 200 --train 2 --test 2",
    "data road-signs": "data road-signs {out} --train 2 --test 2",
    "data traffic-signs": "data traffic-signs {out} --mirror file:///nowhere",
    "data gtsdb": "data gtsdb {out} --mirror file:///nowhere",
    "data gtsdb --from": "data gtsdb {out} --from {home}",
    "data tissue-slides": "data tissue-slides {out} --count 2 --side 512",
    "bench selection": "bench selection --quick --out {out}",
    "bench step": "bench step --quick --out {out}",
    "bench memory": "bench memory --quick --out {out}",
    "bench read": "bench read --quick --out {out}",
}


@pytest.mark.parametrize("words", WRITERS.values(), ids=WRITERS)
def test_a_locked_folder_is_left_alone(home: Path, tmp_path: Path, words: str) -> None:
    out = tmp_path / "out"
    with holder(out) as process:
        before = contents(out)
        sentence = refused(*words.format(home=home, out=out).split())
        assert sentence.startswith(f"{out}: process {process.pid} on ")
        assert contents(out) == before


@pytest.mark.parametrize("command", ["evaluate", "report"])
def test_a_locked_run_is_not_tested(home: Path, command: str) -> None:
    run = home / "run"
    with holder(run):
        before = contents(run)
        assert f"{run}: process " in refused(command, run)
        assert contents(run) == before


def test_a_locked_run_can_be_read(home: Path) -> None:
    with holder(home / "run"):
        assert Outcome("predict", home / "run", home / "digits.png").code == 0


def test_a_folder_of_features_is_locked_and_its_shares_are_not(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    encoder = "--patch-size", "32", "--encoder", "thin-resnet", "--weights", "none"
    words = "slides", "features", tmp_path / "a.png", "--out", tmp_path / "out", *encoder
    with holder(tmp_path / "out"):
        for shard in ((), ("--shard", "1/2")):
            outcome = Outcome(*words, *shard)
            assert outcome.code == 1
            assert "give another --out, or divide the slides with --shard" in outcome.err
    with holder(tmp_path / "out", shard=(2, 2)):
        outcome = Outcome(*words, "--shard", "1/2")
        assert outcome.code == 0, outcome.err


def test_the_python_function_locks_too(tmp_path: Path) -> None:
    with holder(tmp_path), pytest.raises(FolderInUseError):
        train(tiny(), tmp_path)


def test_a_process_of_a_launcher_trains_alone_into_a_folder_of_its_own(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as `srun bash -c 'ips train … --run runs/$SLURM_PROCID'`."""
    for name, value in {
        "PROCID": "1",
        "NTASKS": "4",
        "NTASKS_PER_NODE": "4",
        "JOB_ID": "7",
    }.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    words = "train", home / "tiny.yaml", "--run", tmp_path / "run"
    outcome = Outcome(*words)
    assert outcome.code == 0, outcome.err
    assert (tmp_path / "run" / "model.safetensors").is_file()
    with holder(tmp_path / "run"):
        assert "this is process 2 of 4 that torchrun or SLURM started" in refused(*words)


def test_devices_must_be_the_processes_of_a_launcher(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "4")
    words = "pretrain", home / "digits.png", "--run", tmp_path / "run", "--devices", "2"
    assert refused(*words).startswith("--devices 2 but torchrun or SLURM started 4 processes")
    assert list(tmp_path.iterdir()) == []
