"""Training and evaluation in two processes, as with two devices."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from fuzz.jobs import differences, digest
from ips.config_io import override, write_yaml
from ips.errors import ConfigError, IPSError
from ips.training import Processes, build_data, build_model, evaluate, resolve, train
from ips.training.batches import Batches, Idle, read_batch, share
from ips.training.joining import Part, whole_batch
from ips.training.module import Learner
from ips.training.processes import naming_lost_process
from tests.command import refused
from tests.ranks import alone, run_ranks, slurm, torchrun
from tests.training.driver import main
from tests.training.tiny import TINY, tiny

# 13 images in batches of 4: the last batch has one for two processes. 9 and 7 images give 3 batches
# and 2.
DATA = {"kind": "megapixel-mnist", "side": 200, "train": 13, "validation": 9, "test": 7}
SETTINGS = {"epochs": 2, "batch": 4, "warmup": 0.5, "devices": 2, "checkpoint_minutes": 0}


def task(run: Path, *settings: str, resume: bool = False, **more: Any) -> dict[str, Any]:
    """What `tests.training.driver` has to do."""
    values = override(TINY | {"data": DATA, "train": {**SETTINGS, "result": "best"}}, settings)
    config = run.with_suffix(".yaml")
    write_yaml(values, config)
    return {"run": {"config": str(config), "run": str(run), "resume": resume}, **more}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed run, which starts its second process itself."""
    run = tmp_path_factory.mktemp("whole") / "run"
    outcome = subprocess.run(
        [sys.executable, "-m", "tests.training.driver", json.dumps(task(run))],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        # as the command line and the tests do
        env=os.environ | {"TORCH_CPP_LOG_LEVEL": "ERROR", "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    assert "Warning" not in outcome.stderr
    return run


def test_two_processes_score_exactly_as_one(whole: Path) -> None:
    stored = (whole / "test.json").read_bytes()
    (whole / "test.json").unlink()
    evaluate(whole)
    assert (whole / "test.json").read_bytes() == stored
    assert json.loads(stored)["multi"]["localisation"]


def test_a_run_that_is_killed_ends_as_if_it_had_not_been(whole: Path, tmp_path: Path) -> None:
    """Also if torchrun or SLURM starts the processes."""
    run = tmp_path / "run"
    first, second = run_ranks(torchrun, main, task(run, kill={"step": 2, "ranks": [1]}))
    assert second.code == -signal.SIGKILL
    assert first.code == 1
    assert first.err.count("another process of this training has ended") == 1
    assert "Traceback" not in first.err
    both = run_ranks(slurm, main, task(run, resume=True, kill={"step": 6, "ranks": [0, 1]}))
    assert [ended.code for ended in both] == [-signal.SIGKILL] * 2
    for ended in run_ranks(slurm, main, task(run, resume=True)):
        assert ended.code == 0, ended.err
    assert differences(digest(run), digest(whole)) == []


def test_the_gradient_is_that_of_one_process(tmp_path: Path) -> None:
    same = ["encoder.freeze_norm=true", "aggregate.dropout=0", "aggregate.attention_dropout=0"]
    same += ["train.warmup=0"]
    found = []
    for devices, launcher in ((2, torchrun), (1, alone)):
        path, run = tmp_path / f"{devices}.pt", tmp_path / str(devices)
        work = task(run, *same, f"train.devices={devices}", gradient=str(path))
        run_ranks(launcher, main, work, world=devices)
        found.append(torch.load(path, weights_only=True))
    two, one = found
    torch.testing.assert_close(two["gradient"], one["gradient"], rtol=1e-4, atol=1e-6)
    assert two["mean"].tolist() == [0.5, 0.5]


@pytest.mark.parametrize("world", [2, 3, 5])
@pytest.mark.parametrize("images", [1, 4])
def test_the_gradients_of_all_shares_add_up_to_that_of_the_batch(world: int, images: int) -> None:
    """Also with weights of classes, whose loss is no mean over images, and idle devices."""
    config = tiny("encoder.freeze_norm=true")
    data = build_data(config)
    config = resolve(config, data)
    torch.manual_seed(0)
    net = build_model(config).eval()
    weights = {"majority": torch.linspace(0.1, 2, 10).view(1, 10)}
    learner = Learner(net, config, weights=weights)
    numbers = list(range(images))

    def answers(numbers: Any) -> tuple[Any, Any]:
        batch = read_batch(data.train, numbers, load="eager")
        return batch, net.forward_train(batch.sources, load="eager", seed=0)

    def gradient() -> torch.Tensor:
        return torch.cat([w.grad.flatten() for w in net.parameters() if w.grad is not None])

    batch, output = answers(numbers)
    loss = learner._loss(output, batch.labels)
    loss.backward()
    expected = gradient()
    shares = [share(numbers, rank, world) for rank in range(world)]
    counted = [part for part in shares if not isinstance(part, Idle)]
    assert [number for part in counted for number in part] == numbers
    assert all(len(part) == 1 for part in shares if isinstance(part, Idle))
    with torch.no_grad():  # what other devices send has no gradient
        parts = [Part.of(*answers(part)) for part in counted]
    total = torch.zeros_like(expected)
    for rank, part in enumerate(shares):
        net.zero_grad()
        batch, own = answers(part)
        joined, labels = whole_batch(
            parts, own, rank=rank, world=world, counted=not isinstance(part, Idle)
        )
        found = learner._loss(joined, labels)
        torch.testing.assert_close(found, loss)
        found.backward()
        total += gradient() / world  # as DDP averages
    torch.testing.assert_close(total, expected, rtol=1e-4, atol=1e-6)


def test_each_image_is_tested_once() -> None:
    config = tiny("data.test=7", "train.batch=2")
    data = build_data(config)
    for world in (1, 2, 3, 5):
        seen: list[int] = []
        steps = set()
        for rank in range(world):
            batches = Batches(resolve(config, data), data)
            trainer: Any = type("Trainer", (), {"global_rank": rank, "world_size": world})()
            batches.trainer = trainer
            loader = batches.test_dataloader()
            steps.add(len(loader))
            seen += [number for batch in loader for number in batch.numbers]
        assert sorted(seen) == list(range(7))
        assert len(steps) == 1  # a device that was done earlier would not answer the others


class TestMistakes:
    def test_torchrun_without_the_setting(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("WORLD_SIZE", "2")
        with pytest.raises(ConfigError, match=r"train\.devices=1 but torchrun started 2 processes"):
            train(tiny(), tmp_path / "run")
        with pytest.raises(ConfigError, match=r"train\.devices=3 but .* started 2 processes"):
            train(tiny("train.devices=3"), tmp_path / "run")
        assert not (tmp_path / "run").exists()
        Processes(2).check(devices="train.devices")
        assert not Processes(2).is_first

    def test_several_machines_without_torchrun(self, tmp_path: Path) -> None:
        with pytest.raises(
            ConfigError, match=r"train\.devices=1 and train\.nodes=2 but .*torchrun"
        ):
            train(tiny("train.nodes=2"), tmp_path / "run")

    def test_fewer_images_than_devices(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"train\.batch=4 on 5 devices"):
            train(tiny("train.devices=5"), tmp_path / "run")

    def test_synchronised_norms_without_a_gpu(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"train\.sync_batchnorm=true but there is no GPU"):
            train(tiny("train.sync_batchnorm=true"), tmp_path / "run")

    def test_folds_on_several_devices(self, tmp_path: Path) -> None:
        (tmp_path / "own.csv").write_text("path,grade\na.png,0\nb.png,1\n")
        values = TINY | {"data": {"kind": "table", "csv": str(tmp_path / "own.csv")}}
        values |= {"tasks": {"grade": {"kind": "binary"}}, "readout": "grade"}
        (tmp_path / "own.yaml").write_text(yaml.safe_dump(values | {"train": SETTINGS}))
        text = refused("train", tmp_path / "own.yaml", "--run", tmp_path / "run", "--folds", "2")
        assert text.startswith("--folds with 2 devices: set train.devices=1")


def test_the_loss_of_a_process_is_one_sentence() -> None:
    sentence = "another process of this training has ended"
    with pytest.raises(IPSError, match=sentence), naming_lost_process():
        raise RuntimeError("[/gloo/transport/tcp/pair.cc:547] Connection closed by peer")
    with pytest.raises(RuntimeError, match="a bug"), naming_lost_process():
        raise RuntimeError("a bug")
