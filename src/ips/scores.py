"""The logits of a very large image in a file, so that an interrupted look can go on.

Letters: N patches, S score channels.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

import numpy as np
import torch
from torch import Tensor

from ips.models import ScoreTable

_BLOCK = 2**20


class ScoreFile(ScoreTable):
    """A table of logits ``(N, S)`` in a file; what was scored before is there again.

    The number of patches done is written after their logits, so that a process may be ended at
    any moment and what the file says is done is done.

    Args:
        path: the file; a new one if there is none, or one of another size.
        patches: N.
        channels: S.
    """

    def __init__(self, path: Path, patches: int, channels: int) -> None:
        self._path = path
        size = 8 + 4 * patches * channels
        if not path.is_file() or path.stat().st_size != size:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with path.open("wb") as file:
                    _allocate(file, size)
            except OSError:
                path.unlink(missing_ok=True)
                raise
        self._count = np.memmap(path, dtype=np.int64, mode="r+", shape=(1,))
        rows = np.memmap(path, dtype=np.float32, mode="r+", offset=8, shape=(patches, channels))
        super().__init__(torch.from_numpy(rows), done=min(int(self._count[0]), patches))

    def add(self, logits: Tensor) -> None:
        """Fill in the next ``(n, S)``."""
        super().add(logits)
        self._count[0] = self.done

    def remove(self) -> None:
        """The image has been answered: the file has served."""
        self._path.unlink(missing_ok=True)


def _allocate(file: IO[bytes], size: int) -> None:
    """Take all of the disk now: one that fills up later would kill the process."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
        return
    for start in range(0, size, _BLOCK):  # macOS and Windows
        file.write(bytes(min(_BLOCK, size - start)))
