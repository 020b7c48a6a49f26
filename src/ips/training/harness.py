"""The Lightning harness that training and pretraining share: trainer, loader, step basics."""

from __future__ import annotations

import logging
import math
import os
import re
import signal
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Literal

import lightning as L
import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.utilities.warnings import PossibleUserWarning
from lightning.pytorch.loggers import Logger
from rich.progress import Progress
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset

from ips.errors import ConfigError, IPSError, listed
from ips.locks import started_together
from ips.training.callbacks import (
    Bar,
    FiniteWeights,
    LastCheckpoint,
    MetricsFile,
    StopOtherDevices,
)
from ips.training.checkpoint import CheckpointFiles
from ips.training.folder import RunFolder

_NOT_DETERMINISTIC = re.compile(r"(\S+) does not have a deterministic implementation")

Precision = Literal["32-true", "16-mixed", "bf16-mixed"]


class BaseLearner(L.LightningModule, ABC):
    """Base class of the training step of a network.

    Args:
        seed: random seed of all steps.
        hint: what to do if the training diverges, for the error message.
    """

    def __init__(self, *, seed: int, hint: str) -> None:
        super().__init__()
        self.seed, self.hint = seed, hint
        self._images: Sequence[str] = ()

    @abstractmethod
    def batch_images(self, batch: Any, batch_idx: int) -> Sequence[str]:
        """Names of the images that a batch comes from."""

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        self._images = self.batch_images(batch, batch_idx)

    @abstractmethod
    def epoch_metrics(self) -> dict[str, float]:
        """Metrics of the current epoch, by column of ``metrics.csv``."""

    def step_number(self, batch_idx: int) -> int:
        """Number of a batch among all of the training, also if several batches are one update."""
        batches = self.trainer.accumulate_grad_batches
        return self.global_step * batches + batch_idx % batches

    def seed_step(self, batch_idx: int) -> None:
        """Seed torch with the step number, so that a resumed run repeats the same steps."""
        step = self.step_number(batch_idx) * self.trainer.world_size + self.global_rank
        torch.manual_seed(self.seed * 1_000_003 + step)

    def check_finite(self, loss: Tensor) -> None:
        """Raise an error that names the images if the loss is infinite or not a number."""
        if not math.isfinite(value := loss.item()):
            raise self._diverged(f"the loss became {value}")

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Check the gradient; with 16-mixed, such a step is skipped instead."""
        if self.trainer.precision == "16-mixed":
            return
        gradients = [weight.grad for weight in self.parameters() if weight.grad is not None]
        if not torch.stack([gradient.isfinite().all() for gradient in gradients]).all():
            raise self._diverged("the gradient became infinite or not a number")

    def _diverged(self, problem: str) -> IPSError:
        images = listed(self._images, most=8)
        return IPSError(f"{problem} in step {self.global_step}, with {images}: {self.hint}")

    @staticmethod
    def scheduled(optimizer: Optimizer, factor: Callable[[int], float]) -> dict[str, Any]:
        """The optimizer, its learning rate multiplied by ``factor(step)`` at every step."""
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }


def fit(
    learner: BaseLearner,
    batches: L.LightningDataModule,
    folder: RunFolder,
    *,
    settings: Mapping[str, Any],
    progress: Progress,
    epochs: int,
    precision: Precision,
    devices: int = 1,
    deterministic: bool = False,
    gradient_clip: float | None = None,
    accumulate: int = 1,
    logger: Logger | None = None,
    log_memory: bool = False,
    callbacks: Sequence[L.Callback] = (),
) -> L.Trainer:
    """Train into a run folder, starting from its last checkpoint if it has one.

    Args:
        learner: training step; its ``epoch_metrics`` are written to ``metrics.csv``.
        batches: asked for a new train loader in every epoch.
        settings: all settings that change what is learnt, stored in the checkpoints.
        progress: progress bar, started here unless it is already shown.
        devices: number of GPUs, or of processes without a GPU.
        deterministic: use only deterministic operations; an error names one that is not.
        gradient_clip: maximum norm of the gradient; None for no limit.
        accumulate: number of batches per update of the weights.
        logger: further logger of the epoch metrics.
        log_memory: add the column ``peak_mb`` to the metrics.
        callbacks: further callbacks, called first.
    """
    gpu = torch.cuda.is_available()
    metrics = MetricsFile(folder.metrics, log_memory=log_memory)
    last = LastCheckpoint(folder.checkpoint)
    own = [metrics, last, Bar(progress), StopOtherDevices()]
    checkpoints = CheckpointFiles(folder, settings, learner.state_dict(), progress.console)
    start = None if checkpoints.start is None else checkpoints.start.path
    with _session(), _deterministic() if deterministic else nullcontext():
        trainer = _trainer(
            max_epochs=epochs,
            devices=devices,
            plugins=[checkpoints, *_environment(devices)],
            strategy="ddp" if devices > 1 else "auto",
            sync_batchnorm=gpu and devices > 1,  # statistics of the whole batch
            precision=precision,
            gradient_clip_val=gradient_clip,
            accumulate_grad_batches=accumulate,
            logger=logger or False,
            callbacks=[FiniteWeights(), *callbacks, *own],
            use_distributed_sampler=False,  # the loaders split the batches themselves
            reload_dataloaders_every_n_epochs=1,  # the order depends on the epoch
        )
        trainer.fit(learner, datamodule=batches, ckpt_path=start, weights_only=True)
    return trainer


def test(
    learner: BaseLearner,
    batches: L.LightningDataModule,
    *,
    progress: Progress,
    precision: Precision,
) -> None:
    """Run the test steps of a learner."""
    with _session():
        trainer = _trainer(
            devices=1,
            plugins=_environment(1),
            precision=precision,
            logger=False,
            callbacks=[Bar(progress)],
        )
        trainer.test(learner, datamodule=batches, verbose=False)


def _trainer(**settings: Any) -> L.Trainer:
    return L.Trainer(
        accelerator="gpu" if torch.cuda.is_available() else "cpu",
        enable_checkpointing=False,  # LastCheckpoint saves
        enable_progress_bar=False,  # Bar replaces it
        enable_model_summary=False,
        num_sanity_val_steps=0,
        **settings,
    )


def _environment(devices: int) -> list[Any]:
    """Lightning's own environment, unless torchrun or SLURM started a process for each device."""
    started = started_together()
    if devices > 1 and started is not None and started[1] == devices:
        return []  # Lightning finds the environment by itself
    return [LightningEnvironment()]


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


class _Loader(DataLoader[Any]):
    """Raises the errors of `_Batches` in the main process."""

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        for batch in super().__iter__():
            if isinstance(batch, IPSError):
                raise batch
            yield batch


def make_loader(
    read: Callable[[Sequence[int]], Any],
    order: Sequence[int],
    *,
    batch: int,
    workers: int,
    pin_memory: bool = False,
) -> DataLoader[Any]:
    """A loader of batches.

    Args:
        read: reads the batch with the given item numbers; must be picklable if there are workers.
        order: item numbers of an epoch, in order.
        batch: number of items per batch.
        pin_memory: copy batches to pinned memory, for a faster transfer to a GPU.
    """
    return _Loader(
        _Batches(read),
        sampler=order,
        batch_size=batch,
        num_workers=workers,
        collate_fn=_identity,
        pin_memory=pin_memory,
    )


def _identity(batch: Any) -> Any:
    return batch


@contextmanager
def _deterministic() -> Iterator[None]:
    """Allow only deterministic operations, and name one that is not in one sentence."""
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # which CUDA's products need
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    try:
        yield
    except RuntimeError as error:
        found = _NOT_DETERMINISTIC.search(str(error))
        if found is None:
            raise
        raise ConfigError(
            f"train.deterministic=true: {found[1]} has no deterministic implementation on this "
            "device: train on a CPU, or set train.deterministic=false"
        ) from error
    finally:
        torch.use_deterministic_algorithms(before[0])
        torch.backends.cudnn.benchmark = before[1]


@contextmanager
def _session() -> Iterator[None]:
    """Silence Lightning's advice, and raise KeyboardInterrupt at Ctrl-C as Python does.

    Lightning would exit the process, and leave a signal handler behind that ignores Ctrl-C.
    """
    handler = signal.getsignal(signal.SIGINT)
    loggers = [logging.getLogger(f"lightning.{part}") for part in ("pytorch", "fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PossibleUserWarning)
            # Lightning's own use of torch's tree utilities
            warnings.filterwarnings("ignore", message=".*LeafSpec.*")
            # There need not be validation images.
            warnings.filterwarnings("ignore", message="Total length of `list`")
            yield
    except SystemExit as stop:
        raise KeyboardInterrupt from stop
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)
