"""The files in a run folder of training or pretraining.

config.yaml          all settings, resolved
metrics.csv          one row per epoch
checkpoints/         state after the last finished epoch, for --resume
figures/             figures
model.safetensors    the trained model, with its config in the header
test.json            score of each task on the test images
predictions.csv      predictions for all test images, written by `ips report`
report.html          the report, written by `ips report`
viewer/              cache of `ips view`
tensorboard/         the metrics for TensorBoard
encoder.safetensors  the pretrained encoder, with its config in the header
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ips.errors import RunError


class RunFolder:
    """Paths of the files in a run folder.

    Args:
        path: the folder, which need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.metrics = path / "metrics.csv"
        self.checkpoint = path / "checkpoints" / "last.ckpt"
        self.figures = path / "figures"
        self.model = path / "model.safetensors"
        self.test = path / "test.json"
        self.encoder = path / "encoder.safetensors"

    def has_run(self, *, resume: bool) -> bool:
        """Whether the folder holds a started run; an error if that run is not to be resumed."""
        if self.path.exists() and not self.path.is_dir():
            raise RunError(f"{self.path}: is a file: give a folder as --run")
        started = any(file.is_file() for file in (self.checkpoint, self.model, self.encoder))
        if started and not resume:
            raise RunError(
                f"{self.path}: already holds a run: give another --run, or continue with --resume"
            )
        return started

    def check_settings(self, now: Mapping[str, Any], then: Mapping[str, Any]) -> None:
        """Check that the settings of a resumed run are those that it was started with."""
        changed = sorted(key for key in now.keys() | then.keys() if now.get(key) != then.get(key))
        if changed:
            settings = ", ".join(f"{key}={then.get(key)}" for key in changed)
            raise RunError(
                f"{self.path}: was started with other settings ({settings}): resume with those in "
                f"{self.config.name}, or give another --run"
            )
