"""What happens beside the learning: the bar, the log, the checkpoint."""

from __future__ import annotations

import csv
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from rich.progress import Progress

from ips.models import Net
from ips.training.module import Learner


class Bar(Callback):
    """One bar over all steps of a run, or of a test.

    Args:
        progress: where it is shown, perhaps among others.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._own = not progress.live.is_started
        self._task = self._progress.add_task("", note="")

    def on_train_start(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        """Start where the run starts, which is not 0 if it was resumed."""
        total = int(trainer.estimated_stepping_batches)
        self._progress.start()
        self._progress.reset(self._task, description="training", total=total)
        self._progress.update(self._task, completed=trainer.global_step)

    def on_train_batch_end(
        self, trainer: L.Trainer, learner: L.LightningModule, outputs: Any, *args: Any
    ) -> None:
        """A step further."""
        note = f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}"
        if outputs is not None:
            note += f"  loss {float(outputs['loss']):.3f}"
        self._progress.update(self._task, completed=trainer.global_step, note=note)

    def on_test_start(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        """The test has a bar of its own."""
        total = int(sum(trainer.num_test_batches))
        self._progress.start()
        self._progress.reset(self._task, description="testing ", total=total, note="")

    def on_test_batch_end(self, trainer: L.Trainer, *args: Any) -> None:
        """A batch further."""
        self._progress.advance(self._task)

    def teardown(self, trainer: L.Trainer, learner: L.LightningModule, stage: str) -> None:
        """Leave the terminal as it was."""
        self._stop()

    def on_exception(self, *args: Any) -> None:
        """Also when the run ends early."""
        self._stop()

    def _stop(self) -> None:
        if self._own:
            self._progress.stop()
        elif self._task in self._progress.task_ids:
            self._progress.remove_task(self._task)


class MetricsLog(Callback):
    """A line of ``metrics.csv`` an epoch; a resumed run drops what it is about to do again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._began = 0.0

    def on_train_epoch_start(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        """Start the epoch's clock."""
        self._began = time.monotonic()

    def on_train_epoch_end(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        """Write the epoch's means."""
        assert isinstance(learner, Learner)
        values = {
            "loss": float(torch.stack(learner.losses).mean()),
            **{f"train_{task}": score for task, score in learner.scores().items()},
            "lr": trainer.optimizers[0].param_groups[0]["lr"],
            "seconds": time.monotonic() - self._began,
            "peak_mb": _peak_mb(),
        }
        epoch = trainer.current_epoch + 1
        row = {"epoch": str(epoch), "step": str(trainer.global_step)}
        row |= {name: f"{value:.6g}" for name, value in values.items()}
        rows = [old for old in self._read() if int(old["epoch"]) < epoch]
        partial = self._path.with_suffix(".partial")
        with partial.open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(row), restval="nan")
            writer.writeheader()
            writer.writerows([*rows, row])
        partial.replace(self._path)
        if trainer.logger is not None:
            trainer.logger.log_metrics(values, step=epoch)

    def _read(self) -> list[dict[str, str]]:
        if not self._path.is_file():
            return []
        with self._path.open(newline="") as file:
            return list(csv.DictReader(file))


def _peak_mb() -> float:
    """Most memory held so far: of the GPU if there is one, else of this process."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 1e6
    if sys.platform == "win32":  # which does not say
        return math.nan
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB; bytes on a Mac
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


class Watch(Callback):
    """Shows the model to somebody after every epoch."""

    def __init__(self, look: Callable[[int, Net], None]) -> None:
        self._look = look

    def on_train_epoch_end(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        """Hand over the epochs done and the model."""
        assert isinstance(learner, Learner)
        self._look(trainer.current_epoch + 1, learner.net)


class LastCheckpoint(Callback):
    """The state after every epoch, replaced in one go, so that there is always a whole one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def on_train_epoch_end(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        """Save."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        partial = self._path.with_suffix(".partial")
        trainer.save_checkpoint(partial)
        partial.replace(self._path)
