"""A score table in a file, so that scoring a very large image can be interrupted and resumed.

Letters: N patches, S score channels.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO
from zlib import crc32

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ips.files import naming_file
from ips.models import ScoreTable

_BLOCK = 2**20


class ScoreFile(ScoreTable):
    """A table of logits ``(N, S)`` in a file; patches scored by an earlier process stay done.

    The file contains the logits as float32, a checksum per patch, and one byte per patch that says
    whether it is done. This byte is written last, so a process may be killed at any time. A patch
    whose checksum is wrong counts as not done.

    Args:
        path: the file; created if it does not exist or has another size.
        patches: N.
        channels: S.
    """

    def __init__(self, path: Path, patches: int, channels: int) -> None:
        self._path = path
        offset = 4 * patches * channels
        size = offset + 5 * patches
        if not path.is_file() or path.stat().st_size != size:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with naming_file(path), path.open("wb") as file:
                    _allocate(file, size)
            except OSError:
                path.unlink(missing_ok=True)
                raise
        logits = np.memmap(path, dtype=np.float32, mode="r+", shape=(patches, channels))
        checks = np.memmap(path, dtype=np.uint32, mode="r+", offset=offset, shape=(patches,))
        flags = np.memmap(
            path, dtype=np.uint8, mode="r+", offset=offset + 4 * patches, shape=(patches,)
        )
        claimed = np.flatnonzero(flags)
        damaged = _checksums(logits[claimed]) != checks[claimed]
        flags[claimed] = np.where(damaged, 0, 1)
        self._checks = checks
        super().__init__(torch.from_numpy(logits), done=torch.from_numpy(flags.view(np.bool_)))

    def put(self, indices: Tensor, logits: Tensor) -> None:
        rows = logits.detach().to(self.logits).numpy()
        self._checks[indices.numpy()] = _checksums(rows)
        super().put(indices, logits)

    def remove(self) -> None:
        """Delete the file."""
        self._path.unlink(missing_ok=True)


def _checksums(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.uint32]:
    contiguous = np.ascontiguousarray(rows)
    return np.array([crc32(row) for row in contiguous], dtype=np.uint32)


def _allocate(file: IO[bytes], size: int) -> None:
    """Reserve the disk space now: writing to a mapped file on a full disk kills the process."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
        return
    for start in range(0, size, _BLOCK):  # macOS and Windows
        file.write(bytes(min(_BLOCK, size - start)))
