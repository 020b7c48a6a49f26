"""Batches of images, as patch sources with labels.

Letters: B images.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import lightning as L
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from ips.models import Load
from ips.patches import PatchSource, in_memory
from ips.training.data import DataSet, Item, set_epoch
from ips.training.harness import make_loader

Batch = tuple[list[PatchSource], dict[str, Tensor]]


class Batches(L.LightningDataModule):
    """Training batches in random order, test batches in the order of the data set.

    Args:
        train, test: data sets.
        batch: B.
        load: with ``eager`` the loader reads the pixels; otherwise the model does.
        seed: random seed of the order, together with the epoch.
        workers: number of worker processes.
    """

    def __init__(
        self,
        train: DataSet,
        test: DataSet,
        *,
        batch: int,
        load: Load,
        seed: int,
        workers: int = 0,
    ) -> None:
        super().__init__()
        self.train, self.test = train, test
        self.batch, self.load, self.seed, self.workers = batch, load, seed, workers

    def train_dataloader(self) -> DataLoader[Any]:
        """The batches of the trainer's current epoch; Lightning calls this in every epoch."""
        assert self.trainer is not None
        epoch = self.trainer.current_epoch
        set_epoch(self.train, epoch)
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
        order = torch.randperm(len(self.train), generator=generator).tolist()
        return self._loader(self.train, order)

    def test_dataloader(self) -> DataLoader[Any]:
        """The batches of all test images."""
        return self._loader(self.test, range(len(self.test)))

    def _loader(self, data: DataSet, order: Sequence[int]) -> DataLoader[Any]:
        read = partial(_read, data, load=self.load)
        return make_loader(read, order, batch=self.batch, workers=self.workers)


def _read(data: DataSet, numbers: Sequence[int], *, load: Load) -> Batch:
    return collate([data[number] for number in numbers], load=load)


def collate(items: Sequence[Item], *, load: Load) -> Batch:
    """B images as a batch; their pixels are read here if the whole batch is to be in memory."""
    sources = [in_memory(source) if load == "eager" else source for source, _ in items]
    labels = {task: torch.stack([labels[task] for _, labels in items]) for task in items[0][1]}
    return sources, labels
