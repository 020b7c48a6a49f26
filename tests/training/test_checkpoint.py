"""Damaged checkpoints and models are noticed, and the previous checkpoint takes over."""

from __future__ import annotations

import errno
import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file, save_file

from ips.config import Config
from ips.errors import IPSError, RunError
from ips.nn import thin_resnet
from ips.nn.weights import load_weights
from ips.nn.weights_file import read_weights, write_weights
from ips.training import load_model, train
from ips.training.checkpoint import DamagedError, read, write
from ips.training.module import Learner
from tests.training.tiny import tiny

CONFIG = tiny("train.epochs=4")
STEP = 10  # in the fourth epoch


class PowerCutError(Exception):
    """Stands for a power cut."""


def cut_off(config: Config, run: Path) -> None:
    """Train until a power cut in the fourth epoch: two checkpoints are left."""
    ordinary = Learner.training_step

    def step(self: Learner, batch: Any, batch_idx: int) -> torch.Tensor:
        if self.global_step == STEP:
            raise PowerCutError
        return ordinary(self, batch, batch_idx)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learner, "training_step", step)
        with pytest.raises(PowerCutError):
            train(config, run)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """The weights of a run that was never interrupted."""
    run = tmp_path_factory.mktemp("whole")
    train(CONFIG, run)
    return load_file(run / "model.safetensors")


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("cut")
    cut_off(CONFIG, run)
    return run


@pytest.fixture
def run(interrupted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(interrupted, tmp_path / "run"))


def checkpoints(run: Path) -> tuple[Path, Path]:
    return run / "checkpoints" / "last.ckpt", run / "checkpoints" / "previous.ckpt"


def resume(run: Path) -> str:
    """Resume a run, and return what it printed."""
    text = io.StringIO()
    train(CONFIG, run, resume=True, console=Console(file=text, width=1000))
    return text.getvalue()


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def flip_one(path: Path) -> None:
    flip(path, path.stat().st_size * 4)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def garble(path: Path) -> None:
    path.write_bytes(np.random.default_rng(0).bytes(5000))


def replace_by_text(path: Path) -> None:
    path.write_text("version https://git-lfs.github.com/spec/v1\n")


def replace_by_other_content(path: Path) -> None:
    with path.open("wb") as stream:
        write({"state_dict": torch.zeros(3)}, stream)


DAMAGE = [flip_one, truncate, empty, garble, replace_by_text, replace_by_other_content]


def test_two_checkpoints_are_kept(run: Path) -> None:
    last, previous = checkpoints(run)
    assert [read(path)["global_step"] for path in (last, previous)] == [9, 6]


@pytest.mark.parametrize("damage", DAMAGE)
def test_the_previous_checkpoint_replaces_a_damaged_one(
    run: Path, whole: dict[str, torch.Tensor], damage: Callable[[Path], None]
) -> None:
    last, previous = checkpoints(run)
    damage(last)
    printed = resume(run)
    sentence = f"warning: {last}: is damaged: training continues from previous.ckpt"
    assert [line for line in printed.splitlines() if "damaged" in line] == [sentence]
    assert same(load_file(run / "model.safetensors"), whole)
    assert [read(path)["global_step"] for path in (last, previous)] == [12, 9]


def test_a_missing_last_checkpoint_needs_no_warning(
    run: Path, whole: dict[str, torch.Tensor]
) -> None:
    """A process may die between the two renames."""
    checkpoints(run)[0].unlink()
    assert "damaged" not in resume(run)
    assert same(load_file(run / "model.safetensors"), whole)


def test_a_damaged_checkpoint_does_not_replace_the_previous_one(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last, previous = checkpoints(run)
    before = previous.read_bytes()
    flip_one(last)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ips.training.checkpoint.write", _full)
        with pytest.raises(OSError, match="No space") as caught:
            resume(run)
    assert caught.value.filename == str(last)
    assert previous.read_bytes() == before
    cut_off_resumed(run)
    assert previous.read_bytes() == before
    assert read(last)["global_step"] == 9


def cut_off_resumed(run: Path) -> None:
    ordinary = Learner.training_step

    def step(self: Learner, batch: Any, batch_idx: int) -> torch.Tensor:
        if self.global_step == STEP:
            raise PowerCutError
        return ordinary(self, batch, batch_idx)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learner, "training_step", step)
        with pytest.raises(PowerCutError):
            resume(run)


def _full(*args: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("damage", DAMAGE)
def test_two_damaged_checkpoints_are_an_error(run: Path, damage: Callable[[Path], None]) -> None:
    last, previous = checkpoints(run)
    damage(last)
    damage(previous)
    remedy = f"delete the folder {last.parent} to train from the start"
    with pytest.raises(RunError) as caught:
        resume(run)
    assert str(caught.value) == f"{last}: is damaged, and so is previous.ckpt: {remedy}"
    previous.unlink()
    with pytest.raises(RunError) as caught:
        resume(run)
    assert str(caught.value) == f"{last}: is damaged: {remedy}"


def test_the_remedy_works(run: Path, whole: dict[str, torch.Tensor]) -> None:
    shutil.rmtree(run / "checkpoints")
    resume(run)
    assert same(load_file(run / "model.safetensors"), whole)


def test_temporary_files_of_a_killed_process_are_removed(run: Path) -> None:
    part, other = run / "checkpoints" / f".last.ckpt.{'0' * 32}.part", run / ".own.part"
    part.touch()
    other.touch()
    resume(run)
    assert not part.exists()
    assert other.exists()


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("encoder.width=4", "is of another model"),
        ("train.seed=5", "is of a run with train.seed=5"),
    ],
)
def test_a_checkpoint_of_another_run_is_an_error(
    run: Path, tmp_path: Path, setting: str, problem: str
) -> None:
    cut_off(tiny("train.epochs=4", setting), tmp_path / "other")
    last, _ = checkpoints(run)
    shutil.copy(tmp_path / "other" / "checkpoints" / "last.ckpt", last)
    with pytest.raises(RunError) as caught:
        resume(run)
    assert str(caught.value).startswith(f"{last}: {problem}, not of this one: put the checkpoint")


def test_a_checkpoint_without_a_checksum_still_loads(
    run: Path, whole: dict[str, torch.Tensor]
) -> None:
    """As older versions wrote it."""
    last, previous = checkpoints(run)
    state = read(last)
    del state["ips_settings"]
    torch.save(state, last)
    previous.unlink()
    assert "warning" not in resume(run)
    assert same(load_file(run / "model.safetensors"), whole)


def test_no_flipped_bit_changes_what_is_read(interrupted: Path, tmp_path: Path) -> None:
    last, _ = checkpoints(interrupted)
    weights = read(last)["state_dict"]
    content, copy = last.read_bytes(), tmp_path / "copy.ckpt"
    rng = np.random.default_rng(0)
    end = 8 * (len(content) - 100)  # the end of the archive and the checksum
    bits = [*rng.integers(8 * len(content), size=40), *rng.integers(end, end + 800, size=40)]
    noticed = 0
    for bit in bits:
        copy.write_bytes(content)
        flip(copy, int(bit))
        try:
            assert same(read(copy)["state_dict"], weights)
        except DamagedError:
            noticed += 1
    assert noticed > 70


class TestModelFiles:
    def test_a_changed_weight_is_an_error(self, run: Path) -> None:
        resume(run)
        model = run / "model.safetensors"
        load_model(run)
        flip(model, 8 * model.stat().st_size - 100)
        with pytest.raises(RunError, match="its content does not fit its checksum"):
            load_model(run)

    def test_an_encoder_is_checked_too(self, tmp_path: Path) -> None:
        path, encoder = tmp_path / "encoder.safetensors", thin_resnet(stages=1, width=4)
        write_weights(path, encoder.state_dict(), config={})
        load_weights(encoder, path)
        flip(path, 8 * path.stat().st_size - 100)
        with pytest.raises(IPSError, match="its content does not fit its checksum"):
            load_weights(encoder, path)

    def test_the_config_is_part_of_the_checksum(self, tmp_path: Path) -> None:
        path = tmp_path / "model.safetensors"
        write_weights(path, {"a": torch.zeros(3)}, config={"keep": 25})
        assert read_weights(path)[1] == {"config": '{"keep": 25}'}
        path.write_bytes(path.read_bytes().replace(b": 25,", b": 26,"))
        with pytest.raises(Exception, match="its content does not fit its checksum"):
            read_weights(path)

    def test_a_file_without_a_checksum_still_loads(self, tmp_path: Path) -> None:
        path = tmp_path / "old.safetensors"
        save_file({"a": torch.ones(2)}, path, metadata={"config": "{}"})
        assert torch.equal(read_weights(path)[0]["a"], torch.ones(2))


def test_the_error_of_a_full_disk_is_the_systems(tmp_path: Path) -> None:
    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left on device"):
        write({"a": torch.zeros(1000)}, Full())


def test_equal_models_are_equal_files(tmp_path: Path) -> None:
    state = {"a": torch.arange(3.0), "b": torch.zeros(2, 2)}
    for number in range(8):  # safetensors would write several entries of a header in random order
        write_weights(tmp_path / f"{number}.safetensors", state, config={"x": 1.5, "y": "é"})
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1
    assert read_weights(tmp_path / "0.safetensors")[1] == {"config": '{"x": 1.5, "y": "\\u00e9"}'}
