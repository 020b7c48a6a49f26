"""Settings of pretraining, and the file of the pretrained encoder."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ips.errors import ConfigError
from ips.images import Channels
from ips.images.colour import channels_of
from ips.nn import ENCODERS, ResNet, build_encoder
from ips.training.folder import save_weights
from ips.training.harness import Precision
from ips.training.processes import Processes

Optimizer = Literal["lars", "adamw"]


@dataclass(frozen=True)
class Settings:
    """Settings of pretraining; the defaults are those of the paper and of BYOL.

    Args:
        data: image files, folders and CSVs.
        coords: folder with the coordinates of tissue patches.
        patch_size: side of a patch in pixels at the resolution that is read; by default that of
            ``coords``, or 256.
        level, mpp, magnification, scale: resolution to read at; at most one of them.
        channels: ``rgb`` or ``grey``, to which other images are converted; by default as they are,
            or RGB if some are grey and some in colour.
        white: value of more than 8 bits that becomes 255, see `ips.open_image`.
        encoder: name of an encoder in ``ips.nn.ENCODERS``.
        width: number of channels of the encoder's first stage.
        hidden, projection: hidden and output size of the projector and the predictor.
        patches_per_slide: number of patches per slide, drawn anew in every epoch.
        epochs: number of epochs; a tenth of them, at most 10, are warm-up.
        batch: number of patches per step, on all devices together.
        optimizer: LARS as in BYOL, or AdamW for small batches.
        lr: peak learning rate; by default 0.2 batch / 256 for LARS and 0.001 for AdamW.
        tau: initial decay of the moving average; BYOL uses 0.99 for short runs.
        seed: random seed of weights, patches and views.
    """

    data: tuple[Path, ...]
    coords: Path | None = None
    patch_size: int | None = None
    level: int | None = None
    mpp: float | None = None
    magnification: float | None = None
    scale: float | None = None
    channels: Channels | None = None
    white: float | None = None
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
        if self.lr is not None:
            return self.lr
        return 0.2 * self.batch / 256 if self.optimizer == "lars" else 0.001

    @property
    def warmup_epochs(self) -> float:
        return min(10, self.epochs / 10)

    def build_encoder(self, channels: int) -> ResNet:
        built = build_encoder(self.encoder, stages=self.stages, width=self.width, inputs=channels)
        assert isinstance(built.net, ResNet)
        return built.net

    def values(self) -> dict[str, Any]:
        """All settings as plain values, with absolute paths."""
        values = asdict(self)
        values["data"] = [str(path.resolve()) for path in self.data]
        values["coords"] = None if self.coords is None else str(self.coords.resolve())
        return {**values, "lr": self.peak_lr}


def check(settings: Settings, processes: Processes) -> None:
    """Check the settings before any file is read."""
    if settings.encoder not in ENCODERS:
        raise ConfigError(
            f"--encoder {settings.encoder}: no such encoder: choose one of {', '.join(ENCODERS)}"
        )
    processes.check(devices="--devices", nodes="--nodes")
    devices = processes.count
    if settings.batch % devices:
        raise ConfigError(
            f"--batch {settings.batch} on {devices} devices: use a multiple of the devices"
        )
    if settings.batch // devices < 2:
        raise ConfigError(
            f"--batch {settings.batch} on {devices} devices: BatchNorm needs at least 2 "
            f"patches per device: use --batch {2 * devices} or more"
        )
    if not 0 <= settings.tau < 1:
        raise ConfigError(f"--tau {settings.tau}: use a number from 0 up to 1, such as 0.996")
    if not 0 < settings.peak_lr < math.inf:
        raise ConfigError(f"--lr {settings.lr}: use a number above 0")


def save_encoder(encoder: ResNet, settings: Settings, path: Path) -> None:
    """Write the weights under torchvision's names.

    The header holds the config sections ``encoder`` and ``patches`` for a training with this
    encoder, and all settings of the pretraining. Pixels are scaled to 0..1.
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
            "scale": settings.scale,
            "channels": channels_of(encoder.channels),
            "white": settings.white,
        },
        "pretraining": settings.values(),
    }
    save_weights(encoder, path, config=config)
