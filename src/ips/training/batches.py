"""The batches that a model learns from, and those it is scored on.

Letters: B images of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from ips.config import Config
from ips.models import Load
from ips.patches import PatchSource, in_memory
from ips.tasks import build_tasks
from ips.training.balance import image_weights
from ips.training.data import Data, DataSet, set_epoch
from ips.training.loaders import BaseBatches, Loader, make_loader


class Batch(NamedTuple):
    """B images with their labels by task, ``(B, ...)``, and their numbers in the data set.

    ``counted`` is False if the images are another device's, see `Idle`.
    """

    sources: list[PatchSource]
    labels: dict[str, Tensor]
    numbers: list[int]
    counted: bool = True


class Shortlists(Protocol):
    """What batches need to know of shortlists, see `ips.training.audit.AuditedSelection`."""

    def is_partial(self, epoch: int) -> bool: ...


class Idle(list[int]):
    """Image of another device, for a device that has none in a batch, but must take a step, too."""


class Batches(BaseBatches):
    """Training batches in random order, the others in the order of the data set.

    A device gets its share of each training batch, see `share`, and whole batches otherwise.

    Args:
        shortlists: tells which epochs need only some patches; None for none.
    """

    def __init__(self, config: Config, data: Data, *, shortlists: Shortlists | None = None) -> None:
        super().__init__()
        self.config, self.data, self._shortlists = config, data, shortlists

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
        partial = self._shortlists is not None and self._shortlists.is_partial(epoch)
        batches = _split(order.tolist(), self.config.train.batch)
        rank, world = self.trainer.global_rank, self.trainer.world_size
        shares = [share(batch, rank, world) for batch in batches]
        return self.resumable("train", self._loader(data, shares, load="lazy" if partial else None))

    def val_dataloader(self) -> DataLoader[Any] | list[Any]:
        if self.data.validation is None:
            return []
        return self.resumable("validation", self._in_order(self.data.validation))

    def test_dataloader(self) -> DataLoader[Any]:
        return self._in_order(self.data.test)

    def _in_order(self, data: DataSet) -> Loader:
        """A loader of whole batches, as they are on one device; each device gets every n-th."""
        assert self.trainer is not None
        batches = _split(range(len(data)), self.config.train.batch)
        rank, world = self.trainer.global_rank, self.trainer.world_size
        batches += [[]] * (-len(batches) % world)  # all devices take the same number of steps
        return self._loader(data, batches[rank::world])

    def _loader(
        self, data: DataSet, batches: Sequence[Sequence[int]], *, load: Load | None = None
    ) -> Loader:
        select = self.config.select
        # lazy: a screen reads a coarse view, and few patches of the image
        read = partial(read_batch, data, load=load or ("lazy" if select.screen else select.load))
        return make_loader(read, batches, workers=self.config.train.workers)


def _split(numbers: Sequence[int], size: int) -> list[Sequence[int]]:
    return [numbers[start : start + size] for start in range(0, len(numbers), size)]


def share(batch: Sequence[int], rank: int, world: int) -> Sequence[int]:
    """The images of a batch that a device gets, of ``world`` devices.

    >>> [share([7, 2, 5], rank, 2) for rank in range(2)], share([7], 1, 2)
    ([[7, 2], [5]], [7])
    """
    each, more = divmod(len(batch), world)
    start = rank * each + min(rank, more)
    return batch[start : start + each + (rank < more)] or Idle(batch[-1:])


def read_batch(data: DataSet, numbers: Sequence[int], *, load: Load) -> Batch:
    """The B images with these numbers; their pixels are read here if ``load`` is eager."""
    if not numbers:
        return Batch([], {}, [])
    items = [data[number] for number in numbers]
    sources = [in_memory(source) if load == "eager" else source for source, _ in items]
    labels = {task: torch.stack([labels[task] for _, labels in items]) for task in items[0][1]}
    return Batch(sources, labels, list(numbers), counted=not isinstance(numbers, Idle))
