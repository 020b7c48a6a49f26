"""Data sets whose random numbers depend on the seed, the epoch and the image index only."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import torch
from torch.utils.data import Dataset

from ips.errors import DataError

Item = TypeVar("Item", covariant=True)


def seeded_generator(seed: int, *key: int) -> np.random.Generator:
    """Random generator for a seed and a key; PCG64 by name, numpy's default may change."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))


class SeededDataset(Dataset[Item]):
    """Base of map-style data sets that are the same in every process and in any order.

    With ``fresh``, the images change from epoch to epoch. ``name`` is for error messages.
    """

    def __init__(self, name: str, *, count: int, seed: int = 0, fresh: bool = False) -> None:
        if count < 1:
            raise DataError(f"a data set of {count} images is empty: ask for at least 1")
        if seed < 0:
            raise DataError(f"seed {seed} is negative: take 0 or more")
        self.name, self.seed, self.fresh = name, seed, fresh
        self._count = count
        # In shared memory, so that persistent workers see the new epoch.
        self._epoch = torch.zeros((), dtype=torch.int64)
        self._epoch.share_memory_()

    def __len__(self) -> int:
        return self._count

    def set_epoch(self, epoch: int) -> None:
        """Switch to the images of ``epoch``; no effect unless ``fresh``."""
        if self.fresh:
            self._epoch.fill_(epoch)

    def check_index(self, index: int) -> None:
        """Raise the IndexError that ends a loop over the data set."""
        if not 0 <= index < len(self):
            raise IndexError(f"{self.name}: there is no image {index}, only 0 to {len(self) - 1}")
