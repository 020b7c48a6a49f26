"""Settings of a pre-training, and the file of the encoder that it gives."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from ips.errors import ConfigError
from ips.nn import ENCODERS, ResNet, build_encoder
from ips.training.harness import Precision
from ips.training.store import save_weights

Optimizer = Literal["lars", "adamw"]


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
    """Write the weights under torchvision's names.

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
    save_weights(encoder, path, config=config)
