"""The files in a run folder of training or pretraining; save and load the trained model.

config.yaml          all settings, resolved
split.csv            split of each image of a table
skipped.csv          files that --skip-errors left out, with the reason
metrics.csv          one row per epoch
start.json           the epoch in which the training began, and its starts: epoch, step and factor
                     of the learning rate
checkpoints/         the state that was saved last and the one before, for --resume, and the weights
                     of the best epoch, if the model is to have those
figures/             figures
model.safetensors    the trained model, with its config and its epoch in the header
test.json            scores of each task on the test images, see `ips.task_scores` and
                     `ips.localisation`, and the epoch of the model
predictions.csv      predictions for all test images, written by `ips report`
report.html          the report, written by `ips report`
viewer/              cache of `ips view`
tensorboard/         the metrics for TensorBoard
encoder.safetensors  the pretrained encoder, with its config in the header
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import nn

from ips.config import Config
from ips.config_io import parse_saved_config
from ips.errors import RunError, because, shown
from ips.files import remove_leftovers
from ips.locks import lock_folder
from ips.models import Net
from ips.nn.weights_file import read_weights, write_weights
from ips.training.model import build_model
from ips.training.processes import Processes

_AGAIN = "copy or download it again, or train the run again"
_EPOCH = "model_epoch"  # beside the keys of a config in the header of a model


class RunFolder:
    """Paths of the files in a run folder.

    Args:
        path: the folder, which need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.split = path / "split.csv"
        self.skipped = path / "skipped.csv"
        self.metrics = path / "metrics.csv"
        self.start = path / "start.json"
        self.checkpoint = path / "checkpoints" / "last.ckpt"
        self.previous_checkpoint = path / "checkpoints" / "previous.ckpt"
        self.figures = path / "figures"
        self.model = path / "model.safetensors"
        self.test = path / "test.json"
        self.encoder = path / "encoder.safetensors"

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint to continue from."""
        return self.checkpoint.is_file() or self.previous_checkpoint.is_file()

    def best(self, epoch: int) -> Path:
        """The weights of an epoch that was the best so far."""
        return self.checkpoint.with_name(f"best-epoch-{epoch}.safetensors")

    def all_best(self) -> list[Path]:
        """The weights of all epochs that were the best at some time, and are still stored."""
        return list(self.checkpoint.parent.glob("best-epoch-*.safetensors"))

    def model_epoch(self) -> ModelEpoch | None:
        """The epoch of the trained model; None if it is unknown, as in runs up to version 0.1."""
        try:
            with safe_open(self.model, framework="pt") as file:
                header = json.loads((file.metadata() or {})["config"])
            return ModelEpoch(**header[_EPOCH])
        except (SafetensorError, OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    @contextmanager
    def lock(self, processes: Processes | None = None) -> Iterator[None]:
        """Keep other processes from writing to the folder, which is created if missing.

        Temporary files of killed processes are removed. Of several ``processes`` that train
        together, the first locks it for all.
        """
        if processes is not None and not processes.is_first:
            yield
            return
        if self.path.exists() and not self.path.is_dir():
            raise RunError(f"{self.path}: is a file: give a folder as --run")
        with lock_folder(self.path, option="run folder"):
            for folder in (self.path, self.checkpoint.parent, self.figures):
                remove_leftovers(folder)
            yield

    def has_run(self, *, resume: bool) -> bool:
        """Whether the folder holds a started run; an error if that run is not to be resumed."""
        files = self.checkpoint, self.previous_checkpoint, self.model, self.encoder
        started = any(file.is_file() for file in files)
        if started and not resume:
            raise RunError(
                f"{self.path}: already holds a run: give another --run, or continue with --resume"
            )
        return started

    def check_settings(self, now: Mapping[str, Any], then: Mapping[str, Any]) -> None:
        """Check that the settings of a resumed run are those that it was started with."""
        both = now.keys() | then.keys()
        changed = sorted((key for key in both if now.get(key) != then.get(key)), key=str)
        if changed:
            found = (
                f"{shown(key, quote=False)}={shown(then.get(key), quote=False)}" for key in changed
            )
            settings = shown(", ".join(found), quote=False)
            raise RunError(
                f"{self.path}: was started with other settings ({settings}): resume with those in "
                f"{self.config.name}, or give another --run"
            )


@dataclass(frozen=True)
class ModelEpoch:
    """The epoch that the weights of a trained model are from.

    Attributes:
        epoch: its number, counted from 1.
        epochs: number of epochs of the training.
        chosen_by: ``score`` or ``loss`` on the validation images; None for the last epoch.
        value: that score or loss.

    >>> str(ModelEpoch(7, 12, "score", 0.93125)), str(ModelEpoch(12, 12))
    ('epoch 7 of 12, with the best validation score (0.931)', 'epoch 12 of 12, the last')
    """

    epoch: int
    epochs: int
    chosen_by: str | None = None
    value: float | None = None

    def __str__(self) -> str:
        words = "the last"
        if self.chosen_by is not None:
            words = f"with the best validation {self.chosen_by} ({self.value:.3f})"
        return f"epoch {self.epoch} of {self.epochs}, {words}"


@dataclass(frozen=True)
class TrainedModel:
    """A trained model in evaluation mode, and the resolved config it was trained with."""

    net: Net
    config: Config


def save_model(net: Net, config: Config, path: Path, *, epoch: ModelEpoch | None = None) -> None:
    """Write the weights of a model with its config and its epoch in the header."""
    header = config.model_dump(mode="json")
    save_weights(net, path, config=header if epoch is None else {**header, _EPOCH: asdict(epoch)})


def save_weights(module: nn.Module, path: Path, *, config: Mapping[str, Any]) -> None:
    """Write the weights of a module as safetensors, with ``config`` as JSON in the header."""
    write_weights(path, module.state_dict(), config=config)


def load_model(run: Path) -> TrainedModel:
    """Load the trained model of a run folder."""
    folder = RunFolder(Path(run))
    if not folder.path.is_dir():
        raise RunError(f"{run}: there is no such run folder")
    if not folder.model.is_file():
        unfinished = "the run is unfinished: continue it with `ips train --resume`"
        hint = (
            unfinished
            if folder.checkpoint.is_file()
            else "this is neither a run nor a shared model"
        )
        if folds := sorted(folder.path.glob("*fold-*/config.yaml")):
            hint = f"it is a cross-validation: give one of its runs, such as {folds[0].parent}"
        raise RunError(f"{folder.path}: no {folder.model.name} in it: {hint}")
    try:
        state, header = read_weights(folder.model)
    except (SafetensorError, OSError) as error:
        damage = because(error, remedy=_AGAIN)
        raise RunError(f"{folder.model}: damaged or unreadable {damage}") from error
    if "config" not in header:
        raise RunError(f"{folder.model}: has no config in its header, so it was not written by ips")
    try:
        values = json.loads(header["config"])
    except (ValueError, RecursionError) as error:
        raise RunError(
            f"{folder.model}: damaged, the config in its header cannot be read: {_AGAIN}"
        ) from error
    if isinstance(values, dict):
        values.pop(_EPOCH, None)
    config = parse_saved_config(values, source=str(folder.model))
    # The trained weights replace the pretrained ones, whose file may be gone.
    start = config.encoder.model_copy(update={"weights": Path("none"), "freeze": 0})
    net = build_model(config.model_copy(update={"encoder": start}))
    try:
        net.load_state_dict(state)
    except RuntimeError as error:
        raise RunError(f"{folder.model}: its weights do not fit its config: {_AGAIN}") from error
    return TrainedModel(net.eval(), config)
