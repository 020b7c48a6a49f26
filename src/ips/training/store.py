"""A run folder on disk: what is in it, and a trained model in and out of it.

config.yaml        every setting, resolved
metrics.csv        a line an epoch
test.json          task name to score
model.safetensors  the final model, with its config in the header
checkpoints/       what --resume goes on from
figures/           pictures
predictions.csv    the answers for all test images, once `ips report` has asked for them
report.html        what `ips report` wrote
viewer/            answers that `ips view` has already
tensorboard/       the same numbers for TensorBoard
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from ips.config import Config, parse_config
from ips.errors import RunError
from ips.models import Net
from ips.training.build import build_model


@dataclass(frozen=True)
class RunFolder:
    """Where the things of a run are."""

    path: Path

    @property
    def config(self) -> Path:
        """Every setting, resolved."""
        return self.path / "config.yaml"

    @property
    def metrics(self) -> Path:
        """A line an epoch."""
        return self.path / "metrics.csv"

    @property
    def test(self) -> Path:
        """Task name to score."""
        return self.path / "test.json"

    @property
    def model(self) -> Path:
        """The final model."""
        return self.path / "model.safetensors"

    @property
    def checkpoint(self) -> Path:
        """The state after the last finished epoch."""
        return self.path / "checkpoints" / "last.ckpt"

    @property
    def figures(self) -> Path:
        """Pictures."""
        return self.path / "figures"


def save_model(net: Net, config: Config, path: Path) -> None:
    """Write the weights with their config in the header; the file appears whole or not at all."""
    partial = path.with_suffix(".partial")
    tensors = {name: tensor.contiguous() for name, tensor in net.state_dict().items()}
    save_file(tensors, partial, metadata={"config": json.dumps(config.model_dump(mode="json"))})
    partial.replace(path)


def load_model(run: Path) -> tuple[Net, Config]:
    """The trained model of a run folder, in evaluation mode."""
    folder = RunFolder(Path(run))
    if not folder.path.is_dir():
        raise RunError(f"{run}: there is no such run folder")
    if not folder.model.is_file():
        has = "an unfinished run: go on with `ips train --resume`"
        hint = has if folder.checkpoint.is_file() else "not a run folder, or one without a model"
        raise RunError(f"{folder.path}: no {folder.model.name} in it, it is {hint}")
    try:
        with safe_open(folder.model, framework="pt") as file:
            header = file.metadata() or {}
        state = load_file(folder.model)
    except (SafetensorError, OSError) as error:
        raise RunError(f"{folder.model}: damaged ({error}); train the run again") from error
    if "config" not in header:
        raise RunError(f"{folder.model}: has no config in its header, so it is not one of ours")
    config = parse_config(json.loads(header["config"]), source=str(folder.model))
    # The trained weights replace the pretrained ones, whose file may be gone.
    start = config.encoder.model_copy(update={"weights": Path("none")})
    net = build_model(config.model_copy(update={"encoder": start}))
    try:
        net.load_state_dict(state)
    except RuntimeError as error:
        raise RunError(
            f"{folder.model}: its weights do not fit its config; train the run again"
        ) from error
    return net.eval(), config
