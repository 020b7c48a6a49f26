"""What a pre-training is asked for, and where its results are.

config.yaml          every setting
metrics.csv          a line an epoch
encoder.safetensors  the encoder, with its config in the header
checkpoints/         what --resume goes on from
figures/             what it holds for alike
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import yaml
from safetensors.torch import save_file

from ips.config import read_yaml
from ips.errors import ConfigError, RunError
from ips.nn import ENCODERS, ResNet, build_encoder

Optimizer = Literal["lars", "adamw"]
Precision = Literal["32-true", "16-mixed", "bf16-mixed"]


@dataclass(frozen=True)
class Settings:
    """Of a pre-training; the defaults are those of the paper and of BYOL.

    Args:
        data: files, folders and CSVs.
        coords: folder of places with tissue.
        patch_size: side of a patch in pixels at the resolution read; by default what ``coords``
            notes, or 256.
        level, mpp, magnification: that resolution; give one at most.
        encoder: of ``ips.nn.ENCODERS``.
        stages, width: of the encoder.
        hidden, projection: sizes of the projector and of the predictor.
        patches_per_slide: drawn anew in every epoch.
        epochs: 10 of them, or a tenth where that is less, warm up.
        batch: patches of a step, on all devices together.
        optimizer: LARS as in BYOL, or AdamW for small batches.
        lr: peak learning rate; by default 0.2 batch / 256 for LARS and 0.001 for AdamW.
        tau: of the moving average when training begins; BYOL takes 0.99 for short runs.
        seed: of weights, patches and views.
        precision: of arithmetic.
    """

    data: tuple[Path, ...]
    coords: Path | None = None
    patch_size: int | None = None
    level: int | None = None
    mpp: float | None = None
    magnification: float | None = None
    encoder: str = "resnet50"
    stages: int = 4
    width: int = 64
    hidden: int = 4096
    projection: int = 256
    patches_per_slide: int = 1000
    epochs: int = 500
    batch: int = 256
    optimizer: Optimizer = "lars"
    lr: float | None = None
    tau: float = 0.996
    seed: int = 0
    precision: Precision = "32-true"

    @property
    def peak_lr(self) -> float:
        """The learning rate after the warm-up."""
        if self.lr is not None:
            return self.lr
        return 0.2 * self.batch / 256 if self.optimizer == "lars" else 0.001

    @property
    def warmup_epochs(self) -> float:
        """Epochs over which the learning rate goes up."""
        return min(10, self.epochs / 10)

    def build_encoder(self, channels: int) -> ResNet:
        """The untrained encoder."""
        built = build_encoder(self.encoder, stages=self.stages, width=self.width, inputs=channels)
        assert isinstance(built.net, ResNet)
        return built.net

    def values(self) -> dict[str, Any]:
        """Every setting as YAML has it, paths from anywhere."""
        values = asdict(self)
        values["data"] = [str(path.resolve()) for path in self.data]
        values["coords"] = None if self.coords is None else str(self.coords.resolve())
        return {**values, "lr": self.peak_lr}


@dataclass(frozen=True)
class Folder:
    """Where the things of a pre-training are."""

    path: Path

    @property
    def config(self) -> Path:
        """Every setting."""
        return self.path / "config.yaml"

    @property
    def metrics(self) -> Path:
        """A line an epoch."""
        return self.path / "metrics.csv"

    @property
    def encoder(self) -> Path:
        """What ``encoder.weights`` takes."""
        return self.path / "encoder.safetensors"

    @property
    def checkpoint(self) -> Path:
        """The state after the last finished epoch."""
        return self.path / "checkpoints" / "last.ckpt"

    @property
    def neighbours(self) -> Path:
        """The picture."""
        return self.path / "figures" / "neighbours.png"

    @property
    def begun(self) -> bool:
        """Whether there is something to go on with."""
        return self.checkpoint.is_file() or self.encoder.is_file()

    def begin(self, values: dict[str, Any], *, resume: bool) -> None:
        """Write the settings down, or see that a run which goes on has the same."""
        if self.path.exists() and not self.path.is_dir():
            raise RunError(f"{self.path}: is a file: give a folder as --run")
        if self.begun and not resume:
            raise RunError(
                f"{self.path}: holds a run already: take another --run, or go on with --resume"
            )
        if not self.begun:
            self.path.mkdir(parents=True, exist_ok=True)
            text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
            self.config.write_text(text, encoding="utf-8")
            return
        then = read_yaml(self.config)
        changed = [name for name in values | then if values.get(name) != then.get(name)]
        if changed:
            words = ", ".join(f"{name}={then.get(name)}" for name in changed)
            raise RunError(
                f"{self.path}: was begun with {words}: resume with the same, or take another --run"
            )


def check(settings: Settings, *, devices: int) -> None:
    """What can be told to be wrong before anything is read."""
    if settings.encoder not in ENCODERS:
        raise ConfigError(
            f"--encoder {settings.encoder}: there is none of this name, only {', '.join(ENCODERS)}"
        )
    if torch.cuda.is_available() and devices > (gpus := torch.cuda.device_count()):
        raise ConfigError(f"--devices {devices} but there are {gpus} GPUs: take that many at most")
    if settings.batch % devices:
        raise ConfigError(
            f"--batch {settings.batch} with --devices {devices}: take a multiple of the devices"
        )
    if settings.batch // devices < 2:
        raise ConfigError(
            f"--batch {settings.batch} with --devices {devices}: BatchNorm needs 2 patches at "
            f"least on each: take --batch {2 * devices} or more"
        )
    if not 0 <= settings.tau < 1:
        raise ConfigError(f"--tau {settings.tau}: take a number from 0 up to 1, such as 0.996")
    if not 0 < settings.peak_lr < math.inf:
        raise ConfigError(f"--lr {settings.lr}: take a number above 0")


def save_encoder(encoder: ResNet, settings: Settings, path: Path) -> None:
    """Write the weights under torchvision's names; the file appears whole or not at all.

    In its header are, as JSON under ``config``, the sections ``encoder`` and ``patches`` as a
    training's config has them, and every setting of the pre-training. Pixels are between 0 and 1.
    """
    config = {
        "encoder": {
            "name": settings.encoder,
            "stages": settings.stages,
            "width": settings.width,
            "inputs": encoder.channels,
            "mean": [0.0],
            "std": [1.0],
        },
        "patches": {
            "size": settings.patch_size,
            "level": settings.level,
            "mpp": settings.mpp,
            "magnification": settings.magnification,
        },
        "pretraining": settings.values(),
    }
    partial = path.with_suffix(".partial")
    tensors = {name: t.detach().cpu().contiguous() for name, t in encoder.state_dict().items()}
    save_file(tensors, partial, metadata={"config": json.dumps(config)})
    partial.replace(path)
