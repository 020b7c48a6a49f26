"""The batches that a model learns from, and those it is scored on.

Letters: B images of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import lightning as L
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from ips.config import Config
from ips.models import Load
from ips.patches import PatchSource, in_memory
from ips.tasks import build_tasks
from ips.training.balance import image_weights
from ips.training.data import Data, DataSet, set_epoch
from ips.training.harness import make_loader


class Batch(NamedTuple):
    """B images with their labels by task, ``(B, ...)``, and their numbers in the data set."""

    sources: list[PatchSource]
    labels: dict[str, Tensor]
    numbers: list[int]


class Cache(Protocol):
    """What batches need to know of cached scores, see `ips.training.refresh.CachedScores`."""

    def is_partial(self, epoch: int) -> bool: ...


class Batches(L.LightningDataModule):
    """Training batches in random order, the others in the order of the data set.

    Args:
        cache: tells which epochs need only some patches; None for none.
    """

    def __init__(self, config: Config, data: Data, *, cache: Cache | None = None) -> None:
        super().__init__()
        self.config, self.data, self._cache = config, data, cache

    def train_dataloader(self) -> DataLoader[Any]:
        """The batches of the trainer's current epoch; Lightning calls this in every epoch."""
        assert self.trainer is not None
        data, epoch = self.data.train, self.trainer.current_epoch
        set_epoch(data, epoch)
        generator = torch.Generator().manual_seed(self.config.train.seed * 1_000_003 + epoch)
        if self.config.train.balance == "sampling":
            chances = image_weights(self.data.labels["train"], build_tasks(self.config.tasks))
            order = torch.multinomial(chances, len(data), replacement=True, generator=generator)
        else:
            order = torch.randperm(len(data), generator=generator)
        partial = self._cache is not None and self._cache.is_partial(epoch)
        return self._loader(data, order.tolist(), load="lazy" if partial else None)

    def val_dataloader(self) -> DataLoader[Any] | list[Any]:
        data = self.data.validation
        return [] if data is None else self._loader(data, range(len(data)))

    def test_dataloader(self) -> DataLoader[Any]:
        return self._loader(self.data.test, range(len(self.data.test)))

    def _loader(
        self, data: DataSet, order: Sequence[int], *, load: Load | None = None
    ) -> DataLoader[Any]:
        select = self.config.select
        # lazy: a screen reads a coarse view, and few patches of the image
        read = partial(read_batch, data, load=load or ("lazy" if select.screen else select.load))
        train = self.config.train
        return make_loader(read, order, batch=train.batch, workers=train.workers)


def read_batch(data: DataSet, numbers: Sequence[int], *, load: Load) -> Batch:
    """The B images with these numbers; their pixels are read here if ``load`` is eager."""
    items = [data[number] for number in numbers]
    sources = [in_memory(source) if load == "eager" else source for source, _ in items]
    labels = {task: torch.stack([labels[task] for _, labels in items]) for task in items[0][1]}
    return Batch(sources, labels, list(numbers))
