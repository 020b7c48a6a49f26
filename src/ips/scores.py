"""A score table in a file, so that scoring a very large image can be interrupted and resumed.

Letters: N patches, S score channels.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

import numpy as np
import torch

from ips.models import ScoreTable

_BLOCK = 2**20


class ScoreFile(ScoreTable):
    """A table of logits ``(N, S)`` in a file; patches scored by an earlier process stay done.

    The file contains the logits as float32, then one byte per patch that says whether it is done.
    This byte is written after the logits, so a process may be killed at any time.

    Args:
        path: the file; created if it does not exist or has another size.
        patches: N.
        channels: S.
    """

    def __init__(self, path: Path, patches: int, channels: int) -> None:
        self._path = path
        offset = 4 * patches * channels
        if not path.is_file() or path.stat().st_size != offset + patches:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with path.open("wb") as file:
                    _allocate(file, offset + patches)
            except OSError:
                path.unlink(missing_ok=True)
                raise
        logits = np.memmap(path, dtype=np.float32, mode="r+", shape=(patches, channels))
        done = np.memmap(path, dtype=np.bool_, mode="r+", offset=offset, shape=(patches,))
        super().__init__(torch.from_numpy(logits), done=torch.from_numpy(done))

    def remove(self) -> None:
        """Delete the file."""
        self._path.unlink(missing_ok=True)


def _allocate(file: IO[bytes], size: int) -> None:
    """Reserve the disk space now: writing to a mapped file on a full disk kills the process."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
        return
    for start in range(0, size, _BLOCK):  # macOS and Windows
        file.write(bytes(min(_BLOCK, size - start)))
