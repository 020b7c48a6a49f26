"""The Lightning harness that training and pretraining share: trainer and step basics."""

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
from lightning.fabric.utilities.warnings import PossibleUserWarning
from lightning.pytorch.loggers import Logger
from lightning.pytorch.strategies import DDPStrategy
from rich.progress import Progress
from torch import Tensor
from torch.optim import Optimizer

from ips.devices import pick_device
from ips.errors import ConfigError, IPSError, Terminated, listed
from ips.training.callbacks import Bar, EqualNorms, MetricsFile, StopOtherDevices
from ips.training.checkpoint import CheckpointFiles
from ips.training.folder import RunFolder
from ips.training.processes import TIMEOUT, Processes, naming_lost_process
from ips.training.saving import Saving

_NOT_DETERMINISTIC = re.compile(r"(\S+) does not have a deterministic implementation")

_EPOCH = "ips_epoch"  # in a checkpoint

Precision = Literal["32-true", "16-mixed", "bf16-mixed"]
Strategy = Literal["ddp", "ddp-gloo"]


class BaseLearner(L.LightningModule, ABC):
    """Base class of the training step of a network.

    Args:
        seed: random seed of all steps.
        hint: what to do if the training diverges, for the error message.

    Attributes:
        between_batches: saves the state if it is time; to be called in every validation step.
    """

    between_batches: Callable[[L.Trainer, L.LightningModule], None]

    def __init__(self, *, seed: int, hint: str) -> None:
        super().__init__()
        self.seed, self.hint = seed, hint
        self._images: Sequence[str] = ()
        self._resumed: dict[str, Any] | None = None

    @abstractmethod
    def begin_epoch(self) -> None:
        """Forget the batches of the epoch before."""

    @abstractmethod
    def epoch_state(self) -> dict[str, Any]:
        """What is known of the batches of the epoch so far; the same on all devices."""

    @abstractmethod
    def load_epoch_state(self, state: dict[str, Any]) -> None:
        """Go on with an epoch from what `epoch_state` returned."""

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint[_EPOCH] = self.epoch_state()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self._resumed = checkpoint.get(_EPOCH)  # versions up to 0.2 saved between epochs only

    def on_train_start(self) -> None:
        """Go on within an epoch; Lightning does not call `on_train_epoch_start` then."""
        self.begin_epoch()
        if self._resumed is not None:
            self.load_epoch_state(self._resumed)
            self._resumed = None

    def on_train_epoch_start(self) -> None:
        self.begin_epoch()

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
    processes: Processes,
    strategy: Strategy = "ddp",
    sync_batchnorm: bool | None = None,
    checkpoint_minutes: float = 10,
    deterministic: bool = False,
    gradient_clip: float | None = None,
    accumulate: int = 1,
    loggers: Sequence[Logger] = (),
    log_memory: bool = False,
    callbacks: Sequence[L.Callback] = (),
) -> L.Trainer:
    """Train into a run folder, starting from its last checkpoint if it has one.

    Args:
        learner: training step; its ``epoch_metrics`` are written to ``metrics.csv``.
        batches: asked for a new train loader in every epoch.
        settings: all settings that change what is learnt, stored in the checkpoints.
        progress: progress bar, started here unless it is already shown.
        processes: the processes that train together.
        strategy: how they exchange gradients: ``ddp``, with NCCL between GPUs and gloo between
            CPUs, or ``ddp-gloo``, with gloo between GPUs as well.
        sync_batchnorm: compute the statistics of BatchNorm over all devices; None for several GPUs.
        checkpoint_minutes: time after which the state is saved also within an epoch.
        deterministic: use only deterministic operations; an error names one that is not.
        gradient_clip: maximum norm of the gradient; None for no limit.
        accumulate: number of batches per update of the weights.
        loggers: further loggers of the epoch metrics.
        log_memory: add the column ``peak_mb`` to the metrics.
        callbacks: further callbacks, called first.
    """
    metrics = MetricsFile(folder.metrics, log_memory=log_memory)
    saving = Saving(folder.checkpoint, minutes=checkpoint_minutes)
    own = [metrics, Bar(progress), StopOtherDevices(), saving]
    checkpoints = CheckpointFiles(folder, settings, learner.state_dict(), progress.console)
    start = None if checkpoints.start is None else checkpoints.start.path
    learner.between_batches = saving.between_batches
    with _session(), _deterministic() if deterministic else nullcontext():
        trainer = _trainer(
            processes,
            strategy,
            max_epochs=epochs,
            plugins=[checkpoints],
            sync_batchnorm=_syncs_norms(processes, sync_batchnorm),
            precision=precision,
            gradient_clip_val=gradient_clip,
            accumulate_grad_batches=accumulate,
            logger=list(loggers),
            callbacks=[EqualNorms(), *callbacks, *own],
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
    processes: Processes,
    strategy: Strategy,
) -> None:
    """Run the test steps of a learner."""
    with _session():
        trainer = _trainer(
            processes,
            strategy,
            precision=precision,
            logger=False,
            callbacks=[Bar(progress), StopOtherDevices()],
        )
        trainer.test(learner, datamodule=batches, verbose=False)


def _trainer(
    processes: Processes, strategy: Strategy, *, plugins: Sequence[Any] = (), **settings: Any
) -> L.Trainer:
    ddp = DDPStrategy(
        # Methods may leave parameters out of a step.
        find_unused_parameters=True,
        process_group_backend="gloo" if strategy == "ddp-gloo" else None,
        timeout=TIMEOUT,
    )
    return L.Trainer(
        accelerator=pick_device().type,
        devices=processes.devices,
        num_nodes=processes.nodes,
        strategy=ddp if processes.count > 1 else "auto",
        plugins=[*plugins, processes.environment()],
        use_distributed_sampler=False,  # the loaders split the batches themselves
        enable_checkpointing=False,  # Saving does it
        enable_progress_bar=False,  # Bar replaces it
        enable_model_summary=False,
        num_sanity_val_steps=0,
        **settings,
    )


def _syncs_norms(processes: Processes, setting: bool | None) -> bool:
    """Whether BatchNorm uses the statistics of the whole batch."""
    gpu = pick_device().type == "cuda"
    if setting and not gpu:
        raise ConfigError(
            "train.sync_batchnorm=true but there is no GPU, which PyTorch needs for it: leave it "
            "out, so that each process has the statistics of its own part of a batch"
        )
    return processes.count > 1 and (gpu if setting is None else setting)


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
            with naming_lost_process():
                yield
    except Terminated:
        raise
    except SystemExit as stop:
        raise KeyboardInterrupt from stop
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)
