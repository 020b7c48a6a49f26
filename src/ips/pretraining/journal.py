"""What is told and kept of a pre-training while it runs: the bar, a line an epoch, a checkpoint."""

from __future__ import annotations

import csv
import signal
import time
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback
from rich.progress import Progress

from ips.pretraining.settings import Folder


class Journal(Callback):
    """Shows every step, and after every epoch writes down means and state.

    A step's ``outputs`` are numbers by name, ``loss`` among them. Of several devices only the
    first speaks and writes.

    Args:
        folder: to write to.
        progress: the bar.
    """

    def __init__(self, folder: Folder, progress: Progress) -> None:
        self._folder, self._progress = folder, progress
        self._task = progress.add_task("training", total=None, note="")
        self._sums: dict[str, float] = {}
        self._steps, self._began = 0, 0.0

    def on_train_start(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        """Show where the run starts, which is not 0 if it was resumed."""
        if trainer.is_global_zero:
            total = int(trainer.estimated_stepping_batches)
            self._progress.update(self._task, total=total, completed=trainer.global_step)
            self._progress.start()

    def on_train_epoch_start(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        """Start the epoch's sums and clock."""
        self._sums, self._steps, self._began = {}, 0, time.monotonic()

    def on_train_batch_end(
        self, trainer: L.Trainer, learner: L.LightningModule, outputs: Any, *args: Any
    ) -> None:
        """Add a step to the sums."""
        self._steps += 1
        for name, value in outputs.items():
            self._sums[name] = self._sums.get(name, 0.0) + float(value)
        note = f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}"
        note += f"  loss {float(outputs['loss']):.3f}"
        self._progress.update(self._task, completed=trainer.global_step, note=note)

    def on_train_epoch_end(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        """A line of ``metrics.csv``, and the state, each replaced in one go."""
        checkpoint = self._folder.checkpoint
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        partial = checkpoint.with_suffix(".partial")
        trainer.save_checkpoint(partial)  # every device takes part
        if not trainer.is_global_zero:
            return
        means = {name: total / self._steps for name, total in self._sums.items()}
        means["lr"] = trainer.optimizers[0].param_groups[0]["lr"]
        means["seconds"] = time.monotonic() - self._began
        row = {"epoch": str(trainer.current_epoch + 1), "step": str(trainer.global_step)}
        self._write(row | {name: f"{value:.6g}" for name, value in means.items()})
        partial.replace(checkpoint)

    def on_fit_end(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        """Leave the terminal as it was."""
        self._progress.stop()

    def on_exception(
        self, trainer: L.Trainer, learner: L.LightningModule, exception: BaseException
    ) -> None:
        """Also when the run ends early; further devices would wait for the first for ever."""
        self._progress.stop()
        kill = getattr(trainer.strategy.launcher, "kill", None)
        if kill is not None and trainer.is_global_zero:
            kill(signal.SIGKILL)

    def _write(self, row: dict[str, str]) -> None:
        """Add a line; those of epochs that a resumed run does again go."""
        path, old = self._folder.metrics, []
        if path.is_file():
            with path.open(newline="") as file:
                old = [r for r in csv.DictReader(file) if int(r["epoch"]) < int(row["epoch"])]
        partial = path.with_suffix(".partial")
        with partial.open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(row))
            writer.writeheader()
            writer.writerows([*old, row])
        partial.replace(path)
