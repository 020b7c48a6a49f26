"""Batches of patches for Lightning, drawn anew in every epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lightning as L
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from ips.errors import IPSError
from ips.pretraining.patches import Collection, Opener, Reader, draw
from ips.pretraining.settings import Settings


class Batches(L.LightningDataModule):
    """Patches of every epoch, drawn anew; each device gets its share of each batch.

    Args:
        collection: slides.
        open_file: opens one.
        settings: how many patches, and the seed.
        steps: of an epoch.
        workers: processes that read.
    """

    def __init__(
        self,
        collection: Collection,
        open_file: Opener,
        settings: Settings,
        *,
        steps: int,
        workers: int,
    ) -> None:
        super().__init__()
        self.collection, self.open_file = collection, open_file
        self.settings, self.steps, self.workers = settings, steps, workers

    def train_dataloader(self) -> DataLoader[Any]:
        """The batches of the trainer's current epoch; asked for anew at every epoch."""
        assert self.trainer is not None
        world, rank = self.trainer.world_size, self.trainer.global_rank
        batch, epoch = self.settings.batch, self.trainer.current_epoch
        reader = epoch_reader(self.collection, self.open_file, self.settings, epoch=epoch)
        order = torch.arange(self.steps * batch).view(self.steps, world, batch // world)
        return _Loader(
            reader,
            sampler=order[:, rank].flatten().tolist(),
            batch_size=batch // world,
            num_workers=self.workers,
            collate_fn=_as_it_is,
            pin_memory=torch.cuda.is_available(),
        )


class _Loader(DataLoader[Any]):
    """Raises, in the main process, the mistakes that the reader hands over."""

    def __iter__(self) -> Iterator[Tensor]:  # type: ignore[override]
        for batch in super().__iter__():
            if isinstance(batch, IPSError):
                raise batch
            yield batch


def _as_it_is(batch: Any) -> Any:
    return batch


def epoch_reader(
    collection: Collection,
    open_file: Opener,
    settings: Settings,
    *,
    epoch: int,
    per_slide: int | None = None,
) -> Reader:
    """The patches of an epoch, which its number and the seed decide."""
    slides, each = collection.slides, per_slide or settings.patches_per_slide
    return Reader(
        slides,
        open_file,
        draw(slides, per_slide=each, seed=settings.seed, epoch=epoch),
        seed=settings.seed * 1_000_003 + epoch,
        skip_blank=settings.coords is None,
        skip_errors=collection.skip_errors,
    )
