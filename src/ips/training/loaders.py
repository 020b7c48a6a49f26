"""Loaders of whole batches, in a given order, that can go on within an epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import lightning as L
from torch.utils.data import DataLoader, Dataset, Sampler

from ips.errors import IPSError


class _Batches(Dataset[Any]):
    """Reads whole batches, and returns errors as values.

    If a worker process raised the error, torch would put the worker's traceback into its message.
    """

    def __init__(self, read: Callable[[Sequence[int]], Any]) -> None:
        self._read = read

    def __getitems__(self, numbers: Sequence[int]) -> Any:
        try:
            return self._read(numbers)
        except IPSError as error:
            return error


class _Order(Sampler[list[int]]):
    """The item numbers of every batch; the first ``done`` batches are left out."""

    def __init__(self, batches: Sequence[Sequence[int]]) -> None:
        self._batches, self.done = batches, 0

    def __iter__(self) -> Iterator[Any]:
        return iter(self._batches[self.done :])

    def __len__(self) -> int:
        return len(self._batches)


class Loader(DataLoader[Any]):
    """Raises the errors of `_Batches` in the main process, and can go on within an epoch.

    Its length is that of the whole epoch.

    Attributes:
        given: number of batches that were given, or left out.
    """

    def __init__(self, order: _Order, data: _Batches, **options: Any) -> None:
        super().__init__(data, batch_sampler=order, **options)
        self._order, self.given = order, 0

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        self.given = self._order.done
        for batch in super().__iter__():
            if isinstance(batch, IPSError):
                raise batch
            self.given += 1
            yield batch

    def leave_out(self, count: int) -> None:
        """Leave out the first batches."""
        self._order.done = self.given = count


class BaseBatches(L.LightningDataModule):
    """Base class of the batches of a training, whose checkpoints store how far an epoch is.

    Lightning would store the state of a loader, but it asks for the first one too early to resume.
    """

    def __init__(self) -> None:
        super().__init__()
        self._loaders: dict[str, tuple[int, Loader]] = {}
        self._resumed: dict[str, dict[str, int]] = {}

    def resumable(self, name: str, loader: Loader) -> Loader:
        """A new loader of the current epoch, without the batches that were given before."""
        assert self.trainer is not None
        epoch, state = self.trainer.current_epoch, self._resumed.get(name)
        if state is not None and state["epoch"] == epoch:
            loader.leave_out(state["batches"])
        self._loaders[name] = epoch, loader
        return loader

    def state_dict(self) -> dict[str, dict[str, int]]:
        """What a checkpoint stores: epoch and number of batches of each loader."""
        return {
            name: {"epoch": epoch, "batches": loader.given}
            for name, (epoch, loader) in self._loaders.items()
        }

    def load_state_dict(self, state_dict: dict[str, dict[str, int]]) -> None:
        self._resumed = state_dict


def make_loader(
    read: Callable[[Sequence[int]], Any],
    batches: Sequence[Sequence[int]],
    *,
    workers: int,
    pin_memory: bool = False,
) -> Loader:
    """A loader of batches.

    Args:
        read: reads the batch with the given item numbers; must be picklable if there are workers.
        batches: item numbers of every batch of an epoch, in order.
        pin_memory: copy batches to pinned memory, for a faster transfer to a GPU.
    """
    return Loader(
        _Order(batches),
        _Batches(read),
        num_workers=workers,
        collate_fn=_identity,
        pin_memory=pin_memory,
    )


def _identity(batch: Any) -> Any:
    return batch
