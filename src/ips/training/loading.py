"""Batches for Lightning: images as patch sources, with their labels.

Letters: B images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import lightning as L
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ips.errors import IPSError
from ips.models import Load
from ips.patches import PatchSource, in_memory, sampled

Item = tuple[PatchSource, dict[str, Tensor]]
Batch = tuple[list[PatchSource], dict[str, Tensor]]


class DataSet(Protocol):
    """What training needs of a data set: images by number, each with its labels."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Item: ...


class Sampled:
    """A data set of which each image shows at most ``count`` of its patches."""

    def __init__(self, data: DataSet, count: int, *, seed: int) -> None:
        self.data, self.count, self.seed = data, count, seed

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Item:
        source, labels = self.data[index]
        return sampled(source, self.count, seed=self.seed), labels

    def set_epoch(self, epoch: int) -> None:
        """Hand on which epoch begins."""
        announce(self.data, epoch)


def announce(data: DataSet, epoch: int) -> None:
    """Tell a data set which epoch begins, if it wants to know."""
    set_epoch: Callable[[int], None] | None = getattr(data, "set_epoch", None)
    if set_epoch is not None:
        set_epoch(epoch)


class _Items(Dataset[Item]):
    """A data set as torch's loader wants it, which asks for a batch at a time.

    A mistake in the data comes back as a value: raised in a worker, torch would put the worker's
    traceback into its sentence.
    """

    def __init__(self, data: DataSet, *, load: Load) -> None:
        self.data, self.load = data, load

    def __len__(self) -> int:
        return len(self.data)

    def __getitems__(self, numbers: Sequence[int]) -> Batch | IPSError:
        try:
            return collate([self.data[number] for number in numbers], load=self.load)
        except IPSError as error:
            return error


class _Loader(DataLoader[Any]):
    """Raises, in the main process, the mistakes that ``_Items`` hands over."""

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        for batch in super().__iter__():
            if isinstance(batch, IPSError):
                raise batch
            yield batch


class Batches(L.LightningDataModule):
    """Training batches in an order that the seed and the epoch decide; test batches in order.

    Args:
        train, test: the data sets; one that has ``set_epoch`` is told each epoch's number.
        batch: B.
        load: with ``eager`` the loader's workers read the pixels; else nothing is read here.
        seed: of the order.
        workers: processes that read.
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
        """The batches of the trainer's current epoch; asked for anew at every epoch."""
        assert self.trainer is not None
        epoch = self.trainer.current_epoch
        announce(self.train, epoch)
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
        order = torch.randperm(len(self.train), generator=generator).tolist()
        return self._loader(self.train, order)

    def test_dataloader(self) -> DataLoader[Any]:
        """All test images."""
        return self._loader(self.test, range(len(self.test)))

    def _loader(self, data: DataSet, order: Sequence[int]) -> DataLoader[Any]:
        return _Loader(
            _Items(data, load=self.load),
            sampler=order,
            batch_size=self.batch,
            num_workers=self.workers,
            collate_fn=_as_it_is,
        )


def _as_it_is(batch: Any) -> Any:
    return batch


def collate(items: Sequence[Item], *, load: Load) -> Batch:
    """B images side by side; their pixels are read here if all are to be in memory at once."""
    sources = [in_memory(source) if load == "eager" else source for source, _ in items]
    labels = {task: torch.stack([labels[task] for _, labels in items]) for task in items[0][1]}
    return sources, labels
