from __future__ import annotations

import csv
import json
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from ips.config import EncoderConfig, PatchesConfig
from ips.errors import IPSError
from ips.nn import thin_resnet
from ips.nn.weights import load_weights
from ips.pretraining.byol import BYOL
from ips.pretraining.train import Learner
from ips.training.callbacks import StopOtherDevices
from tests.command import Outcome

TINY = (
    *("--encoder", "thin-resnet", "--stages", "1", "--width", "4"),
    *("--patch-size", "8", "--patches-per-slide", "10", "--batch", "4"),
    *("--hidden", "8", "--projection", "4", "--epochs", "3", "--tau", "0.9"),
)


def refused(*words: str | Path) -> str:
    return Outcome("pretrain", *words, *TINY).sentence


def weights(run: Path) -> dict[str, Tensor]:
    return load_file(run / "encoder.safetensors")


def same(one: Path, other: Path) -> bool:
    a, b = weights(one), weights(other)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    random = np.random.default_rng(0)
    for name in ("a", "b"):
        pixels = random.integers(0, 256, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{name}.png")
    return folder


@pytest.fixture(scope="module")
def run(images: Path) -> Path:
    """A finished run, never interrupted."""
    folder = images.parent / "run"
    outcome = Outcome("pretrain", images, "--run", folder, *TINY)
    assert outcome.code == 0, outcome.err
    assert "encoder.safetensors" in outcome.err
    return folder


class TestRun:
    def test_leaves_an_encoder_that_a_training_loads(self, run: Path) -> None:
        encoder = thin_resnet(stages=1, width=4, channels=3)
        load_weights(encoder, run / "encoder.safetensors")
        assert encoder.state_dict().keys() == weights(run).keys()
        assert torch.equal(encoder.conv1.weight, weights(run)["conv1.weight"])
        with safe_open(run / "encoder.safetensors", framework="pt") as file:
            config = json.loads(file.metadata()["config"])
        stored = EncoderConfig(**config["encoder"])
        assert (stored.name, stored.stages, stored.width) == ("thin-resnet", 1, 4)
        assert stored.inputs == 3
        assert PatchesConfig(**config["patches"]).size == 8
        assert config["pretraining"]["optimizer"] == "lars"

    def test_learns(self, run: Path) -> None:
        torch.manual_seed(0)
        start = thin_resnet(stages=1, width=4, channels=3).state_dict()
        assert not torch.equal(start["conv1.weight"], weights(run)["conv1.weight"])

    def test_the_target_is_a_moving_average(self, run: Path) -> None:
        torch.manual_seed(0)
        start = thin_resnet(stages=1, width=4, channels=3).conv1.weight
        state = torch.load(run / "checkpoints/last.ckpt", weights_only=True)["state_dict"]
        online, target = (
            state[f"byol.{part}.conv1.weight"] for part in ("encoder", "target_encoder")
        )
        assert torch.equal(online, weights(run)["conv1.weight"])
        assert not torch.equal(target, start)
        assert 0 < (target - start).norm() < (online - start).norm()
        assert not torch.equal(target, online)

    def test_sees_two_views_of_a_batch(
        self, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        step, forward = Learner.training_step, BYOL.forward
        batches: list[Tensor] = []
        views: list[tuple[Tensor, Tensor]] = []

        def stepping(learner: Learner, batch: Tensor, batch_idx: int) -> object:
            batches.append(batch.clone())
            return step(learner, batch, batch_idx)

        def seeing(byol: BYOL, first: Tensor, second: Tensor) -> object:
            views.append((first.clone(), second.clone()))
            return forward(byol, first, second)

        monkeypatch.setattr(Learner, "training_step", stepping)
        monkeypatch.setattr(BYOL, "forward", seeing)
        outcome = Outcome("pretrain", images, "--run", tmp_path / "run", *TINY, "--epochs", "1")
        assert outcome.code == 0, outcome.err
        assert len(batches) == len(views) == 5
        for batch, (first, second) in zip(batches, views, strict=True):
            assert first.shape == second.shape == batch.shape
            for one, other in ((first, second), (first, batch / 255), (second, batch / 255)):
                assert ((one - other).abs().amax(dim=(1, 2, 3)) > 0.01).all()  # every patch

    def test_writes_a_line_an_epoch_and_the_picture(self, run: Path) -> None:
        with (run / "metrics.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert [row["epoch"] for row in rows] == ["1", "2", "3"]
        assert [row["step"] for row in rows] == ["5", "10", "15"]  # 20 patches, batches of 4
        assert all(0 < float(row["loss"]) < 8 for row in rows)
        assert float(rows[0]["tau"]) == pytest.approx(0.9, abs=0.01)
        assert float(rows[2]["tau"]) == pytest.approx(0.99, abs=0.01)
        assert float(rows[0]["lr"]) <= 0.2 * 4 / 256
        with Image.open(run / "figures/neighbours.png") as picture:
            assert min(picture.size) > 300

    def test_a_batch_is_what_workers_read(self, images: Path, run: Path, tmp_path: Path) -> None:
        outcome = Outcome("pretrain", images, "--run", tmp_path / "run", *TINY, "--workers", "1")
        assert outcome.code == 0, outcome.err
        assert same(tmp_path / "run", run)

    def test_grey_images_and_adamw(self, images: Path, tmp_path: Path) -> None:
        with Image.open(images / "a.png") as picture:
            picture.convert("L").save(tmp_path / "grey.png")
        words = "--run", tmp_path / "run", *TINY, "--optimizer", "adamw", "--epochs", "1"
        assert Outcome("pretrain", tmp_path / "grey.png", *words).code == 0
        assert weights(tmp_path / "run")["conv1.weight"].shape[1] == 1


class TestResume:
    def test_ends_with_the_weights_of_an_uninterrupted_run(
        self, images: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        step = Learner.training_step

        def stopped(learner: Learner, batch: Tensor, batch_idx: int) -> object:
            if learner.global_step == 8:  # within the second epoch
                raise KeyboardInterrupt
            return step(learner, batch, batch_idx)

        folder = tmp_path / "run"
        with monkeypatch.context() as patch:
            patch.setattr(Learner, "training_step", stopped)
            outcome = Outcome("pretrain", images, "--run", folder, *TINY)
        assert outcome.code == 130
        assert "--resume" in outcome.err
        assert not (folder / "encoder.safetensors").exists()
        assert Outcome("pretrain", images, "--run", folder, *TINY, "--resume").code == 0
        assert same(folder, run)
        columns = [
            [line.rsplit(",", 1)[0] for line in (where / "metrics.csv").read_text().splitlines()]
            for where in (folder, run)  # all but the seconds
        ]
        assert columns[0] == columns[1]

    def test_draws_a_missing_figure_after_training(
        self, images: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def stopped(*args: object, **kwargs: object) -> None:
            raise KeyboardInterrupt

        folder, words = tmp_path / "run", (images, "--run", tmp_path / "run", *TINY)
        with monkeypatch.context() as patch:
            patch.setattr("ips.pretraining.train.find_neighbours", stopped)
            assert Outcome("pretrain", *words).code == 130
        assert Outcome("pretrain", *words, "--resume").code == 0
        assert (folder / "figures/neighbours.png").is_file()
        assert same(folder, run)

    def test_a_finished_run_is_unchanged(self, images: Path, run: Path) -> None:
        before = (run / "encoder.safetensors").stat().st_mtime_ns
        assert Outcome("pretrain", images, "--run", run, *TINY, "--resume").code == 0
        assert (run / "encoder.safetensors").stat().st_mtime_ns == before
        assert "--resume" in refused(images, "--run", run)

    def test_other_settings_are_an_error(self, images: Path, run: Path) -> None:
        text = refused(images, "--run", run, "--resume", "--seed", "1")
        assert "started with other settings (seed=0)" in text


class TestMistakes:
    def test_an_empty_folder(self, tmp_path: Path) -> None:
        assert "no image or slide in this folder" in refused(tmp_path, "--run", tmp_path / "run")

    def test_a_batch_of_one(self, images: Path, tmp_path: Path) -> None:
        words = images, "--run", tmp_path, *TINY, "--batch"
        assert "BatchNorm needs at least 2 patches" in Outcome("pretrain", *words, "1").err
        assert "multiple of the devices" in Outcome("pretrain", *words, "5", "--devices", "2").err

    def test_fewer_patches_than_a_batch(self, images: Path, tmp_path: Path) -> None:
        outcome = Outcome("pretrain", images, "--run", tmp_path, *TINY, "--batch", "64")
        assert "less than one batch of 64" in outcome.err
        assert outcome.code == 1

    def test_an_unreadable_slide_is_named(self, images: Path, tmp_path: Path) -> None:
        (tmp_path / "bad.svs").write_bytes(b"not a slide")
        text = refused(images, tmp_path / "bad.svs", "--run", tmp_path / "run")
        assert "bad.svs" in text
        assert "--skip-errors" in text
        assert "nothing.png" in refused(tmp_path / "nothing.png", "--run", tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_unreadable_slides_are_skipped_on_request(self, images: Path, tmp_path: Path) -> None:
        (tmp_path / "bad.svs").write_bytes(b"not a slide")
        words = images, tmp_path / "bad.svs", "--run", tmp_path / "run", *TINY, "--epochs", "1"
        outcome = Outcome("pretrain", *words, "--skip-errors")
        assert outcome.code == 0, outcome.err
        assert "skipped: " in outcome.err
        assert "bad.svs" in outcome.err
        assert (tmp_path / "run/encoder.safetensors").is_file()
        picture = np.zeros((40, 40, 3), np.uint8)
        Image.fromarray(picture).save(tmp_path / "bad.svs", format="png")  # it is one more now
        assert (
            "other settings (slides=2)" in Outcome("pretrain", *words, "--resume").err
        )  # as it would be with it

    def test_a_slide_that_breaks_off_is_named(self, images: Path, tmp_path: Path) -> None:
        """Its header is whole: only reading tells."""
        whole = (images / "a.png").read_bytes()
        (tmp_path / "broken.png").write_bytes(whole[: len(whole) // 2])
        for workers in ("0", "1"):
            text = refused(tmp_path / "broken.png", "--run", tmp_path / "run", "--workers", workers)
            assert "broken.png" in text

    def test_settings(self, images: Path, tmp_path: Path) -> None:
        words = images, "--run", tmp_path / "run", *TINY
        assert "resnet50" in Outcome("pretrain", *words, "--encoder", "vit").err
        assert "--tau 1.0" in Outcome("pretrain", *words, "--tau", "1").err
        assert "--lr -1" in Outcome("pretrain", *words, "--lr", "-1").err
        assert "--lr nan" in Outcome("pretrain", *words, "--lr", "nan").err
        assert Outcome("pretrain", *words, "--seed", str(2**63)).code == 2
        assert "a.png" in Outcome("pretrain", *words, "--mpp", "0.5").err  # which it does not have
        (tmp_path / "file").write_text("")
        assert "is a file" in refused(images, "--run", tmp_path / "file")

    def test_a_loss_that_is_no_number(
        self, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broken = lambda p, t: p.sum(dim=1) * torch.nan  # noqa: E731
        monkeypatch.setattr("ips.pretraining.byol.distance", broken)
        text = refused(images, "--run", tmp_path / "run")
        assert text.startswith("the loss became nan in step 0, with a.png, b.png: lower --lr")


@pytest.mark.parametrize("first", [True, False])
def test_an_error_ends_the_other_devices_too(first: bool) -> None:
    killed: list[int] = []
    launcher = SimpleNamespace(kill=killed.append)
    alone: Any = SimpleNamespace(strategy=SimpleNamespace(launcher=None), is_global_zero=True)
    many: Any = SimpleNamespace(strategy=SimpleNamespace(launcher=launcher), is_global_zero=first)
    for trainer in (alone, many):
        StopOtherDevices().on_exception(trainer, Learner.__new__(Learner), IPSError("no number"))
    assert killed == ([signal.SIGKILL] if first else [])


def test_slides_without_tissue_are_reported(images: Path, tmp_path: Path) -> None:
    for stem, places in (("a", [[0, 0], [8, 8], [16, 24], [3, 5]]), ("b", [])):
        with h5py.File(tmp_path / f"{stem}_patches.h5", "w") as file:
            file["coords"] = np.array(places, dtype=np.int64).reshape(-1, 2)
    words = images, "--run", tmp_path / "run", *TINY, "--epochs", "1", "--coords", tmp_path
    outcome = Outcome("pretrain", *words)
    assert outcome.code == 0, outcome.err
    assert "skipped: b.png" in outcome.err
    with (tmp_path / "run/metrics.csv").open(newline="") as file:
        assert next(csv.DictReader(file))["step"] == "1"  # the four places of a


def test_the_size_of_patches_is_that_of_their_places(images: Path, tmp_path: Path) -> None:
    for stem in ("a", "b"):
        with h5py.File(tmp_path / f"{stem}.h5", "w") as file:
            file["coords"] = np.array([[0, 0], [8, 8], [16, 24]])
            file["coords"].attrs.update(patch_size=12, patch_size_level0=12)
    at = TINY.index("--patch-size")
    tiny = TINY[:at] + TINY[at + 2 :]
    words: list[str | Path] = [images, "--coords", tmp_path, *tiny, "--epochs", "1"]
    outcome = Outcome("pretrain", *words, "--run", tmp_path / "run")
    assert outcome.code == 0, outcome.err
    assert yaml.safe_load((tmp_path / "run/config.yaml").read_text())["patch_size"] == 12
    with safe_open(tmp_path / "run/encoder.safetensors", framework="pt") as header:
        assert json.loads(header.metadata()["config"])["patches"]["size"] == 12
    assert Outcome("pretrain", *words, "--run", tmp_path / "run", "--resume").code == 0
    said = refused(images, "--coords", tmp_path, "--run", tmp_path / "other")  # of 8 px
    assert "coordinates of patches of 12 px" in said
