"""The last scores of the patches of all training images, in a file for every epoch.

An epoch reads the file before its own, and writes its own, which is complete and synced
before the checkpoint that names it is saved. So a run that is killed at any time finds the scores
that belong to its checkpoint, and to the one before.

Letters: n training images, N patches of an image, S score channels.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

_LARGEST = float(np.finfo(np.float16).max)


@dataclass(frozen=True)
class Scores:
    """What is known of the patches of an image.

    Attributes:
        numbers: ``(N,)`` ascending numbers of the patches in the grid, see `PatchSource.numbers`.
        logits: ``(N, S)`` when they were last scored; nan if never, -inf for a blank patch.
        epochs: ``(N,)`` the epoch of that, counted from 2; 1 before the training, 0 if never.
        kept: ``(N,)``, True for patches that were selected when the image was last seen.
    """

    numbers: Tensor
    logits: Tensor
    epochs: Tensor
    kept: Tensor

    @classmethod
    def unknown(cls, numbers: Tensor, channels: int) -> Scores:
        """No scores yet."""
        N = len(numbers)
        return cls(
            numbers,
            torch.full((N, channels), torch.nan),
            torch.zeros(N, dtype=torch.int64),
            torch.zeros(N, dtype=torch.bool),
        )

    def of(self, numbers: Tensor) -> Scores:
        """What is known of the patches with these numbers."""
        found = Scores.unknown(numbers, self.logits.shape[1])
        at = torch.searchsorted(self.numbers, numbers).clamp(max=len(self.numbers) - 1)  # (N,)
        known = self.numbers[at] == numbers
        for name in ("logits", "epochs", "kept"):
            getattr(found, name)[known] = getattr(self, name)[at[known]]
        return found


class ScoreStore(nn.Module):
    """Scores of n images on disk, with half precision; only those of one image are in memory.

    The places in the file are a buffer, so that a checkpoint has them.

    Args:
        folder: folder of the files, that of the checkpoints.
        images: n.
        channels: S.
    """

    places: Tensor  # (n, 3) offset, number of patches (0 if unknown) and checksum
    files: Tensor  # (2,) numbers of the file and of the one before, 0 for none

    def __init__(self, folder: Path, *, images: int, channels: int) -> None:
        super().__init__()
        self._folder, self._channels = folder, channels
        self._row = np.dtype(
            [("number", "<i8"), ("epoch", "<u2"), ("kept", "?"), ("logits", "<f2", (channels,))]
        )
        self.register_buffer("places", torch.zeros(images, 3, dtype=torch.int64))
        self.register_buffer("files", torch.zeros(2, dtype=torch.int64))
        self._new = self._empty()  # places in the file of this epoch
        self._epoch = 0

    def _empty(self) -> Tensor:
        return torch.zeros(len(self.places), 3, dtype=torch.int64)

    @property
    def filled(self) -> bool:
        """Whether the scores of some image are known."""
        return bool(self.places[:, 1].any())

    def begin(self, epoch: int) -> bool:
        """Begin a file, numbered from 1; return whether the one before is there."""
        self._folder.mkdir(parents=True, exist_ok=True)
        needed = {self._path(int(file)) for file in self.files}
        for path in set(self._folder.glob("scores-*.bin")) - needed:
            path.unlink(missing_ok=True)
        self._epoch, self._new = epoch, self._empty()
        self._path(epoch).write_bytes(b"")
        found = not self.filled or self._path(int(self.files[0])).is_file()
        if not found:
            self.places.zero_()
        return found

    def get(self, number: int) -> Scores | None:
        """The scores of an image; None if they are unknown, or damaged on disk."""
        places, file = self.places, int(self.files[0])
        if self._new[number, 1]:  # an image may come twice in an epoch
            places, file = self._new, self._epoch
        data = self._read(places[number], file)
        if data is None:
            return None
        rows: npt.NDArray[Any] = np.frombuffer(data, dtype=self._row)
        return Scores(
            torch.from_numpy(rows["number"].astype(np.int64)),
            torch.from_numpy(rows["logits"].astype(np.float32)),
            torch.from_numpy(rows["epoch"].astype(np.int64)),
            torch.from_numpy(rows["kept"].copy()),
        )

    def put(self, number: int, scores: Scores) -> None:
        """Write the scores of an image to the file of this epoch."""
        rows = np.zeros(len(scores.numbers), dtype=self._row)
        rows["number"], rows["epoch"] = scores.numbers.numpy(), scores.epochs.numpy()
        finite = scores.logits.clamp(-_LARGEST, _LARGEST)
        blank = scores.logits == -torch.inf
        rows["logits"] = torch.where(blank, scores.logits, finite).numpy()
        rows["kept"] = scores.kept.numpy()
        self._write(number, rows.tobytes())

    def finish(self) -> None:
        """Complete the file of this epoch, also with images that did not come in it."""
        for number in range(len(self.places)):
            if not self._new[number, 1]:
                data = self._read(self.places[number], int(self.files[0]))
                if data is not None:
                    self._write(number, data)
        self._sync()
        self.places.copy_(self._new)
        self.files.copy_(torch.tensor([self._epoch, int(self.files[0])]))

    def state(self) -> dict[str, Any]:
        """What a checkpoint within an epoch stores; the file of the epoch is only appended to."""
        self._sync()
        return {"epoch": self._epoch, "places": self._new.clone()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on within an epoch."""
        self._epoch, self._new = state["epoch"], state["places"].clone()

    def forget(self) -> None:
        """Forget all scores."""
        self.places.zero_()

    def remove(self) -> None:
        """Delete the files, after the training."""
        for path in self._folder.glob("scores-*.bin"):
            path.unlink(missing_ok=True)

    def _path(self, epoch: int) -> Path:
        return self._folder / f"scores-{epoch}.bin"

    def _read(self, place: Tensor, epoch: int) -> bytes | None:
        offset, count, checksum = place.tolist()
        if not count:
            return None
        try:
            with self._path(epoch).open("rb") as file:
                file.seek(offset)
                data = file.read(count * self._row.itemsize)
        except FileNotFoundError:  # deleted, and the run was resumed within an epoch
            return None
        return data if crc32(data) == checksum else None

    def _sync(self) -> None:
        if not self._epoch:  # no file yet
            return
        with self._path(self._epoch).open("ab") as file:
            os.fsync(file.fileno())

    def _write(self, number: int, data: bytes) -> None:
        with self._path(self._epoch).open("ab") as file:
            place = [file.tell(), len(data) // self._row.itemsize, crc32(data)]
            file.write(data)
        self._new[number] = torch.tensor(place)
