"""Checkpoints with a checksum: the last one, and the one before in case the last is damaged.

A checkpoint is the zip archive of `torch.save`. The SHA-256 of the archive is its comment, so that
both are one file and `torch.load` still reads it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from lightning.fabric.plugins.io.checkpoint_io import CheckpointIO
from rich.console import Console
from torch import Tensor

from ips.errors import RunError
from ips.files import atomic_write
from ips.training.folder import RunFolder

Settings = Mapping[str, Any]

_MAGIC = b"PK\x03\x04"
_TAG = b"sha256:"
_COMMENT = len(_TAG) + hashlib.sha256().digest_size * 2
_NO_COMMENT = bytes(2)  # a zip archive ends in the length of its comment and the comment
_BLOCK = 2**20
# What Lightning needs to continue.
_KEYS = {"state_dict", "loops", "epoch", "global_step", "optimizer_states", "lr_schedulers"}
_SETTINGS = "ips_settings"


class DamagedError(Exception):
    """A checkpoint that is truncated, changed or no checkpoint at all."""


@dataclass(frozen=True)
class Checkpoint:
    """The state of a training, as Lightning saves it, and the file that it was read from."""

    path: Path
    state: dict[str, Any]


class CheckpointFiles(CheckpointIO):
    """Saves and loads the checkpoints of a run for Lightning.

    Args:
        folder: run folder.
        settings: settings of the run; those of a checkpoint must not contradict them.
        weights: state of the learner before training; a checkpoint must have the same shapes.
        console: console for a warning.
    """

    def __init__(
        self, folder: RunFolder, settings: Settings, weights: Mapping[str, Tensor], console: Console
    ) -> None:
        self._folder, self._settings = folder, settings
        self.start = _find(folder, console)
        if self.start is not None:
            _check_origin(self.start, settings, weights)
        # A damaged last checkpoint must not replace the previous one.
        self._last_is_whole = self.start is None or self.start.path == folder.checkpoint

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        """Write the last checkpoint; the one that it replaces becomes the previous one."""
        last, previous = self._folder.checkpoint, self._folder.previous_checkpoint
        last.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(last) as stream:
            write(checkpoint | {_SETTINGS: json.dumps(_comparable(self._settings))}, stream)
            stream.flush()
            os.fsync(stream.fileno())
            if last.exists() and self._last_is_whole:
                last.replace(previous)
        self._last_is_whole = True

    def load_checkpoint(self, path: Any, *args: Any, **options: Any) -> dict[str, Any]:
        """The state that was found, to start from."""
        assert self.start is not None
        return self.start.state

    def remove_checkpoint(self, path: Any) -> None:
        """Lightning removes no checkpoints of ours."""


def write(state: Mapping[str, Any], stream: BinaryIO) -> None:
    """Write a state to a seekable stream, with its checksum."""
    target = _Hashing(stream)
    torch.save(dict(state), target)  # type: ignore[arg-type]
    if target.error is not None:
        raise target.error
    comment = _TAG + target.digest.hexdigest().encode()
    stream.seek(-len(_NO_COMMENT), os.SEEK_END)
    stream.write(len(comment).to_bytes(2, "little") + comment)


def read(path: Path) -> dict[str, Any]:
    """Read the state of a checkpoint, after a comparison with its checksum if it has one."""
    with path.open("rb") as stream:
        if stream.read(len(_MAGIC)) != _MAGIC:
            raise DamagedError
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(size - _COMMENT, 0))
        comment = stream.read()
        if comment.startswith(_TAG):  # older versions wrote none
            digest = _digest(stream, size - _COMMENT - len(_NO_COMMENT))
            if comment != _TAG + digest.encode():
                raise DamagedError
        stream.seek(0)
        try:
            state = torch.load(stream, map_location="cpu", weights_only=True)
        except Exception as error:  # damaged bytes can fail anywhere, also with an OSError
            raise DamagedError from error
    if not isinstance(state, dict) or not state.keys() >= _KEYS:
        raise DamagedError
    weights = state["state_dict"]
    if not isinstance(weights, dict) or not all(isinstance(t, Tensor) for t in weights.values()):
        raise DamagedError
    return state


class _Hashing:
    """A file for `torch.save` that computes the checksum; the first error is kept in ``error``.

    An error inside torch's writer would end the process or hide the reason.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.digest = hashlib.sha256()
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        try:
            if self.error is None:
                self._stream.write(data)
        except OSError as error:
            self.error = error
        return len(data)

    def flush(self) -> None:
        """Nothing to do: the stream is flushed at the end."""


def _digest(stream: BinaryIO, size: int) -> str:
    """SHA-256 of the first ``size`` bytes and the length of an empty comment."""
    stream.seek(0)
    digest = hashlib.sha256()
    while size > 0 and (block := stream.read(min(_BLOCK, size))):
        digest.update(block)
        size -= len(block)
    digest.update(_NO_COMMENT)
    return digest.hexdigest()


def _find(folder: RunFolder, console: Console) -> Checkpoint | None:
    """The last whole checkpoint; None if there is no checkpoint at all."""
    last, previous = folder.checkpoint, folder.previous_checkpoint
    damaged: list[Path] = []
    for path in (last, previous):
        try:
            found = Checkpoint(path, read(path)) if path.is_file() else None
        except DamagedError:
            damaged.append(path)
            continue
        if found is not None:
            if damaged:
                text = f"warning: {last}: is damaged: training continues from {previous.name}"
                console.print(text, markup=False, highlight=False, soft_wrap=True)
            return found
    if not damaged:
        return None
    both = f", and so is {previous.name}" if len(damaged) == 2 else ""
    raise RunError(
        f"{damaged[0]}: is damaged{both}: delete the folder {last.parent} to train from the start"
    )


def _check_origin(
    checkpoint: Checkpoint, settings: Settings, weights: Mapping[str, Tensor]
) -> None:
    """Check by settings and shapes of weights that a checkpoint belongs to this run."""
    state, problem = checkpoint.state["state_dict"], None
    if {name: t.shape for name, t in state.items()} != {n: t.shape for n, t in weights.items()}:
        problem = "of another model"
    elif _SETTINGS in checkpoint.state:
        now, then = _comparable(settings), json.loads(checkpoint.state[_SETTINGS])
        # A newer version may have more settings.
        changed = sorted(key for key in now.keys() & then.keys() if now[key] != then[key])
        if changed:
            problem = f"of a run with {', '.join(f'{key}={then[key]}' for key in changed)}"
    if problem is not None:
        raise RunError(
            f"{checkpoint.path}: is {problem}, not of this one: put the checkpoint of this run "
            f"back, or delete the folder {checkpoint.path.parent} to train from the start"
        )


def _comparable(settings: Settings) -> dict[str, Any]:
    """The settings as in JSON, without paths, which change when a folder is moved."""

    def is_path(value: Any) -> bool:
        values = value if isinstance(value, list | tuple) else [value]
        return any(isinstance(v, str) and Path(v).is_absolute() for v in values)

    values: dict[str, Any] = json.loads(json.dumps(dict(settings), default=str))
    return {key: value for key, value in values.items() if not is_path(value)}
