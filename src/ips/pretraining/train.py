"""Pretrain an encoder with BYOL on the patches of slides, without labels, into a run folder."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor
from torch.utils.data import DataLoader

from ips.config_io import read_yaml, write_yaml
from ips.devices import pick_device
from ips.errors import DataError
from ips.nn import ResNet
from ips.pretraining.augment import TwoViews
from ips.pretraining.byol import BYOL, learning_rate_factor, moving_average
from ips.pretraining.lars import LARS, parameter_groups
from ips.pretraining.neighbours import draw_neighbours, find_neighbours
from ips.pretraining.patches import Collection, Reader, collect, draw, find_files, is_blank
from ips.pretraining.settings import Settings, check, save_encoder
from ips.progress import progress_bar
from ips.slides.coords import Resolution, slide_patches
from ips.training import RunFolder, harness
from ips.training.loaders import BaseBatches, make_loader
from ips.training.processes import Processes, gather

# Number of patches in the search for nearest neighbours.
_COMPARED = 2048


def pretrain(
    settings: Settings,
    *,
    run: str | Path,
    resume: bool = False,
    console: Console | None = None,
    devices: int = 1,
    nodes: int = 1,
    checkpoint_minutes: float = 10,
    workers: int = 0,
    skip_errors: bool = False,
) -> Path | None:
    """Pretrain an encoder into a run folder.

    The state is saved after every epoch, and within an epoch every few minutes. A resumed run ends
    with the same weights as an uninterrupted one.

    Args:
        resume: continue the run in the folder, if there is one.
        console: console for the progress bar and the skipped slides; silent by default.
        devices: number of GPUs of each machine, or of processes without a GPU.
        nodes: number of machines; several need torchrun or SLURM.
        checkpoint_minutes: time after which the state is saved also within an epoch.
        workers: number of processes per device that read patches.
        skip_errors: skip slides that cannot be opened and patches that cannot be read.

    Returns:
        Path of the encoder; None in the processes of all devices but the first.
    """
    processes = Processes(devices, nodes)
    check(settings, processes)
    console = console if console and processes.is_first else Console(quiet=True)
    folder = RunFolder(Path(run))
    with folder.lock(processes):
        return _pretrain(
            settings,
            folder,
            started=folder.has_run(resume=resume),
            console=console,
            processes=processes,
            checkpoint_minutes=checkpoint_minutes,
            workers=workers,
            skip_errors=skip_errors,
        )


def _pretrain(
    settings: Settings,
    folder: RunFolder,
    *,
    started: bool,
    console: Console,
    processes: Processes,
    checkpoint_minutes: float,
    workers: int,
    skip_errors: bool,
) -> Path | None:
    collection = _collect(settings, console, skip_errors=skip_errors)
    settings = replace(settings, patch_size=collection.patch_size)
    counts = (min(slide.count, settings.patches_per_slide) for slide in collection.slides)
    steps = sum(counts) // settings.batch
    if steps == 0:
        raise DataError(
            f"{len(collection.slides)} slides with at most {settings.patches_per_slide} patches "
            f"give less than one batch of {settings.batch}: take a smaller --batch or more slides"
        )
    views = TwoViews(patch=collection.patch_size, channels=collection.channels)
    values = settings.values() | {"slides": len(collection.slides)}
    if started:
        folder.check_settings(values, read_yaml(folder.config))
    elif processes.is_first:
        write_yaml(values, folder.config)
    if folder.encoder.is_file():
        return folder.encoder
    torch.manual_seed(settings.seed)
    encoder = settings.build_encoder(collection.channels)
    byol = BYOL(encoder, encoder.dim, hidden=settings.hidden, projection=settings.projection)
    harness.fit(
        Learner(byol, views, settings, steps=steps * settings.epochs),
        Batches(collection, settings, steps=steps, workers=workers),
        folder,
        settings=values,
        progress=progress_bar(console),
        epochs=settings.epochs,
        precision=settings.precision,
        processes=processes,
        checkpoint_minutes=checkpoint_minutes,
    )
    if not processes.is_first:
        return None
    _draw_neighbours(encoder, collection, settings, folder.figures, console)
    save_encoder(encoder, settings, folder.encoder)
    return folder.encoder


class Learner(harness.BaseLearner):
    """The training step of BYOL; ``steps`` is the number of steps of the whole training."""

    def __init__(self, byol: BYOL, views: TwoViews, settings: Settings, *, steps: int) -> None:
        super().__init__(seed=settings.seed, hint=f"lower --lr {settings.peak_lr:g}")
        self.byol, self.views = byol, views
        self.settings, self.steps = settings, steps
        self._values: list[dict[str, float]] = []

    def begin_epoch(self) -> None:
        self._values = []

    def epoch_state(self) -> dict[str, Any]:
        return {"values": self._values}

    def load_epoch_state(self, state: dict[str, Any]) -> None:
        self._values = state["values"]

    def batch_images(self, batch: Tensor, batch_idx: int) -> list[str]:
        batches = self.trainer.datamodule  # type: ignore[attr-defined]
        assert isinstance(batches, Batches)
        return batches.slide_names(batch_idx)

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        """Loss of a batch ``(b, C, h, w)`` uint8."""
        self.seed_step(batch_idx)
        result = self.byol(*self.views(batch))
        self.check_finite(result.loss)
        values = {
            "loss": result.loss.item(),
            "spread": result.spread.item(),
            "blank": is_blank(batch).float().mean().item(),
            "tau": self._tau(self.global_step),
        }
        shares = gather(values)  # of equal size
        means = {name: sum(v[name] for v in shares) / len(shares) for name in values}
        self._values.append(means)
        loss: Tensor = result.loss
        return loss

    def optimizer_step(self, *args: Any, **options: Any) -> None:
        """Update the weights, then their moving average."""
        step = self.global_step
        super().optimizer_step(*args, **options)
        self.byol.update_target(self._tau(step))

    def epoch_metrics(self) -> dict[str, float]:
        count = len(self._values)
        return {name: sum(v[name] for v in self._values) / count for name in self._values[0]}

    def configure_optimizers(self) -> Any:
        groups, lr = parameter_groups(self.byol), self.settings.peak_lr
        optimizer: torch.optim.Optimizer = (
            LARS(groups, lr=lr)
            if self.settings.optimizer == "lars"
            else torch.optim.AdamW(groups, lr=lr)
        )
        warmup = round(self.settings.warmup_epochs * self.steps / self.settings.epochs)
        return self.scheduled(
            optimizer, lambda step: learning_rate_factor(step, warmup=warmup, total=self.steps)
        )

    def _tau(self, step: int) -> float:
        return moving_average(step, total=self.steps, start=self.settings.tau)


class Batches(BaseBatches):
    """Batches of patches, drawn anew in every epoch; each device gets its share of each batch.

    An epoch has ``steps`` steps.
    """

    def __init__(
        self, collection: Collection, settings: Settings, *, steps: int, workers: int
    ) -> None:
        super().__init__()
        self.collection, self.settings = collection, settings
        self.steps, self.workers = steps, workers
        self._slides = torch.empty(0, 0, dtype=torch.int64)

    def slide_names(self, step: int) -> list[str]:
        """Names of the slides that the patches of a step of the current epoch are from."""
        numbers = self._slides[step].unique().tolist()
        return [self.collection.slides[number].path.name for number in numbers]

    def train_dataloader(self) -> DataLoader[Any]:
        """The batches of the trainer's current epoch; Lightning calls this in every epoch."""
        assert self.trainer is not None
        world, rank = self.trainer.world_size, self.trainer.global_rank
        batch, epoch = self.settings.batch, self.trainer.current_epoch
        reader = _epoch_reader(self.collection, self.settings, epoch=epoch)
        order = torch.arange(self.steps * batch).view(self.steps, world, batch // world)
        order = order[:, rank]  # (steps, batch of this device)
        self._slides = torch.from_numpy(reader.draws[:, 0])[order]
        loader = make_loader(
            reader.read,
            order.tolist(),
            workers=self.workers,
            pin_memory=pick_device().type == "cuda",
        )
        return self.resumable("train", loader)


def _epoch_reader(
    collection: Collection, settings: Settings, *, epoch: int, per_slide: int | None = None
) -> Reader:
    """The patches of an epoch, drawn with the seed and the number of the epoch."""
    each, seed = per_slide or settings.patches_per_slide, settings.seed
    draws = draw(collection.slides, per_slide=each, seed=seed, epoch=epoch)
    blank = settings.coords is None
    return Reader(collection, draws, seed=seed * 1_000_003 + epoch, skip_blank=blank)


def _collect(settings: Settings, console: Console, *, skip_errors: bool) -> Collection:
    resolution = Resolution(
        settings.patch_size,
        settings.level,
        settings.mpp,
        settings.magnification,
        settings.scale,
    )
    open_file = partial(
        slide_patches,
        resolution=resolution,
        coords=settings.coords,
        channels=settings.channels or "as-is",
        white=settings.white,
    )
    files = find_files(settings.data)
    with progress_bar(console, transient=True) as bar:
        task = bar.add_task("opening", total=len(files), note="slides")
        collection = collect(
            files, open_file, skip_errors=skip_errors, progress=lambda: bar.advance(task)
        )
    for text in collection.skipped:
        console.print(f"skipped: {text}", markup=False, highlight=False, soft_wrap=True)
    return collection


def _draw_neighbours(
    encoder: ResNet, collection: Collection, settings: Settings, figures: Path, console: Console
) -> None:
    """Plot nearest neighbours among patches that are drawn as for one more epoch."""
    each = min(-(-_COMPARED // len(collection.slides)), settings.patches_per_slide)
    reader = _epoch_reader(collection, settings, epoch=settings.epochs, per_slide=each)
    reader.draws = reader.draws[:_COMPARED]
    encoder.to(pick_device())
    with progress_bar(console, transient=True) as bar:
        task = bar.add_task("comparing", total=len(reader), note="patches")
        found = find_neighbours(
            encoder, reader, progress=lambda done: bar.update(task, completed=done)
        )
    draw_neighbours(figures / "neighbours.png", found, reader)
    reader.close()
