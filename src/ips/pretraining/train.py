"""Pre-train an encoder on the patches of slides, without labels, into a run folder."""

from __future__ import annotations

import logging
import math
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.fabric.utilities.warnings import PossibleUserWarning
from rich.console import Console
from torch import Tensor

from ips.errors import DataError, IPSError
from ips.nn import ResNet
from ips.pretraining.augment import TwoViews
from ips.pretraining.byol import BYOL, learning_rate_factor, moving_average
from ips.pretraining.journal import Journal
from ips.pretraining.lars import LARS, parameter_groups
from ips.pretraining.loading import Batches, epoch_reader
from ips.pretraining.neighbours import draw_neighbours, find_neighbours
from ips.pretraining.patches import (
    Collection,
    Opener,
    blank,
    collect,
    find_files,
)
from ips.pretraining.settings import Folder, Settings, check, save_encoder
from ips.progress import progress_bar
from ips.slides.coords import Resolution, slide_patches

# Patches that are compared for the picture.
_COMPARED = 2048


def pretrain(
    settings: Settings,
    run: Path,
    *,
    resume: bool = False,
    console: Console,
    devices: int = 1,
    workers: int = 0,
    skip_errors: bool = False,
) -> Path | None:
    """BYOL into the folder ``run``; with ``resume``, go on with what is there.

    Interrupted at any moment, the folder holds the state after the last finished epoch; on one
    device the resumed run ends with the weights that an uninterrupted one would have.

    Args:
        settings: what to learn from, and how.
        run: the folder.
        resume: go on.
        console: where the bar and what is left out are shown.
        devices: GPUs, or processes where there is none.
        workers: processes that read patches, for each device.
        skip_errors: leave out slides that cannot be opened, and patches that cannot be read.

    Returns:
        The encoder's file; None in the processes of further devices.
    """
    check(settings, devices=devices)
    if getattr(rank_zero_only, "rank", 0):  # a further device: the first speaks for all
        console = Console(quiet=True)
    folder = Folder(run)
    resolution = Resolution(
        settings.patch_size, settings.level, settings.mpp, settings.magnification
    )
    open_file = partial(slide_patches, resolution=resolution, coords=settings.coords)
    collection = _collected(settings, open_file, console, skip_errors=skip_errors)
    settings = replace(settings, patch_size=collection.patch_size)
    counts = (min(slide.count, settings.patches_per_slide) for slide in collection.slides)
    steps = sum(counts) // settings.batch
    if steps == 0:
        raise DataError(
            f"{len(collection.slides)} slides with {settings.patches_per_slide} patches at most "
            f"give less than one batch of {settings.batch}: take a smaller --batch or more slides"
        )
    views = TwoViews(patch=collection.patch_size, channels=collection.channels)
    folder.begin(settings.values() | {"slides": len(collection.slides)}, resume=resume)
    if folder.encoder.is_file():
        return folder.encoder
    torch.manual_seed(settings.seed)
    encoder = settings.build_encoder(collection.channels)
    byol = BYOL(encoder, encoder.dim, hidden=settings.hidden, projection=settings.projection)
    learner = Learner(byol, views, settings, steps=steps * settings.epochs)
    batches = Batches(collection, open_file, settings, steps=steps, workers=workers)
    checkpoint = folder.checkpoint if folder.begun else None
    with _lightning_at_rest():
        trainer = _trainer(settings, Journal(folder, progress_bar(console)), devices=devices)
        trainer.fit(learner, datamodule=batches, ckpt_path=checkpoint, weights_only=True)
    if not trainer.is_global_zero:
        return None
    _draw(encoder, collection, open_file, settings, folder.neighbours, console)
    save_encoder(encoder, settings, folder.encoder)
    return folder.encoder


class Learner(L.LightningModule):
    """A step of BYOL.

    Args:
        byol: the networks.
        views: makes two of a batch.
        settings: optimiser, learning rate, moving average and seed.
        steps: of the whole training.
    """

    def __init__(self, byol: BYOL, views: TwoViews, settings: Settings, *, steps: int) -> None:
        super().__init__()
        self.byol, self.views = byol, views
        self.settings, self.steps = settings, steps

    def training_step(self, batch: Tensor, batch_idx: int) -> dict[str, Any]:
        """Loss of a batch ``(b, C, h, w)`` uint8, and what else a person may want to see."""
        # The step's number alone decides what is random in it, so that a resumed run goes on
        # exactly as an uninterrupted one.
        step, world, rank = self.global_step, self.trainer.world_size, self.global_rank
        torch.manual_seed(self.settings.seed * 1_000_003 + step * world + rank)
        seen = self.byol(*self.views(batch))
        if not math.isfinite(value := seen.loss.item()):
            raise IPSError(
                f"the loss became {value} in step {step}: lower --lr {self.settings.peak_lr:g}"
            )
        shares = {"spread": seen.spread, "blank": blank(batch).float().mean()}
        return {"loss": seen.loss, **shares, "tau": self._tau(step)}

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Let the target follow."""
        self.byol.follow(self._tau(self.global_step - 1))

    def configure_optimizers(self) -> Any:
        """BYOL's LARS, or AdamW; the learning rate is set anew at every step."""
        groups, lr = parameter_groups(self.byol), self.settings.peak_lr
        optimizer: torch.optim.Optimizer = (
            LARS(groups, lr=lr)
            if self.settings.optimizer == "lars"
            else torch.optim.AdamW(groups, lr=lr)
        )
        warmup = round(self.settings.warmup_epochs * self.steps / self.settings.epochs)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: learning_rate_factor(step, warmup=warmup, total=self.steps)
        )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }

    def _tau(self, step: int) -> float:
        return moving_average(step, total=self.steps, start=self.settings.tau)


def _collected(
    settings: Settings, open_file: Opener, console: Console, *, skip_errors: bool
) -> Collection:
    files = find_files(settings.data)
    with progress_bar(console, transient=True) as bar:
        task = bar.add_task("opening", total=len(files), note="slides")
        collection = collect(
            files, open_file, skip_errors=skip_errors, progress=lambda: bar.advance(task)
        )
    for text in collection.left_out:
        console.print(f"left out: {text}", markup=False, highlight=False, soft_wrap=True)
    return collection


def _draw(
    encoder: ResNet,
    collection: Collection,
    open_file: Opener,
    settings: Settings,
    path: Path,
    console: Console,
) -> None:
    """The picture of neighbours, of patches that are drawn as for one more epoch."""
    each = min(-(-_COMPARED // len(collection.slides)), settings.patches_per_slide)
    reader = epoch_reader(collection, open_file, settings, epoch=settings.epochs, per_slide=each)
    reader.draws = reader.draws[:_COMPARED]
    encoder.to("cuda" if torch.cuda.is_available() else "cpu")
    with progress_bar(console, transient=True) as bar:
        task = bar.add_task("comparing", total=len(reader), note="patches")
        found = find_neighbours(
            encoder, reader, progress=lambda done: bar.update(task, completed=done)
        )
    draw_neighbours(path, found, reader)
    reader.close()


def _trainer(settings: Settings, journal: Journal, *, devices: int) -> L.Trainer:
    gpu = torch.cuda.is_available()
    return L.Trainer(
        max_epochs=settings.epochs,
        accelerator="gpu" if gpu else "cpu",
        devices=devices,
        strategy="ddp" if devices > 1 else "auto",
        sync_batchnorm=gpu and devices > 1,  # BYOL's statistics are those of the whole batch
        precision=settings.precision,
        logger=False,
        callbacks=[journal],
        enable_checkpointing=False,  # the journal does it, atomically
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,  # the batches are shared out already
        reload_dataloaders_every_n_epochs=1,  # an epoch's patches follow from its number
    )


@contextmanager
def _lightning_at_rest() -> Iterator[None]:
    """Lightning without its notes on hardware and loaders, and with Ctrl-C as Python has it.

    Left alone it exits the process at Ctrl-C, and ignores the key from then on.
    """
    handler = signal.getsignal(signal.SIGINT)
    loggers = [logging.getLogger(f"lightning.{part}") for part in ("pytorch", "fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PossibleUserWarning)
            warnings.filterwarnings("ignore", message=".*LeafSpec.*")  # torch's tree utilities
            yield
    except SystemExit as stop:
        raise KeyboardInterrupt from stop
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)
