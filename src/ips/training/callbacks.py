"""Lightning callbacks: progress bar, metrics file, equal BatchNorms, end of other processes."""

from __future__ import annotations

import csv
import io
import math
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from rich.progress import Progress

from ips.devices import pick_device
from ips.errors import RunError, because
from ips.files import write_text
from ips.progress import print_without_terminal, time_left
from ips.training.processes import average_norms


class Bar(Callback):
    """One progress bar over all steps of a run, or of a test; added to a display shown already."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._own = not progress.live.is_started
        self._task = self._progress.add_task("", note="")
        self._started, self._epochs = 0.0, 0  # epochs of this process, for the time left

    def on_train_start(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        """Show the bar; a resumed run does not start at 0."""
        self._started, self._epochs = time.monotonic(), 0
        total = int(trainer.estimated_stepping_batches)
        self._start(trainer, "training", total=total, completed=trainer.global_step)

    def on_train_batch_end(
        self, trainer: L.Trainer, learner: L.LightningModule, outputs: Any, *args: Any
    ) -> None:
        note = f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}"
        if outputs is not None:
            # Lightning divides the loss by the number of batches per update.
            loss = float(outputs["loss"]) * trainer.accumulate_grad_batches
            note += f"  loss {loss:.3f}"
        self._progress.update(self._task, completed=trainer.global_step, note=note)

    def on_train_epoch_end(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        if trainer.is_global_zero:
            values = learner.epoch_metrics()  # type: ignore[operator]
            text = ", ".join(
                f"{name} {value:.3f}"
                for name, value in values.items()
                if not math.isnan(value) and not _is_limit(name, values)
            )
            epoch, epochs = trainer.current_epoch + 1, trainer.max_epochs or 0
            self._epochs += 1
            left = (time.monotonic() - self._started) / self._epochs * (epochs - epoch)
            line = f"epoch {epoch}/{epochs}: {text}{time_left(left)}"
            print_without_terminal(self._progress, line)

    def on_validation_start(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        note = f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}  validation"
        self._progress.update(self._task, note=note)

    def on_test_start(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        self._start(trainer, "testing ", total=int(sum(trainer.num_test_batches)), note="")

    def on_test_batch_end(self, trainer: L.Trainer, *args: Any) -> None:
        self._progress.advance(self._task)

    def teardown(self, trainer: L.Trainer, learner: L.LightningModule, stage: str) -> None:
        self._stop()

    def on_exception(self, *args: Any) -> None:
        self._stop()

    def _start(self, trainer: L.Trainer, description: str, **values: Any) -> None:
        if trainer.is_global_zero:
            self._progress.start()
            self._progress.reset(self._task, description=description, **values)

    def _stop(self) -> None:
        if self._own:
            self._progress.stop()
        elif self._task in self._progress.task_ids:
            self._progress.remove_task(self._task)


def _is_limit(name: str, values: Mapping[str, float]) -> bool:
    """Whether a metric is an end of the interval of another, which is for the file only."""
    of, _, end = name.rpartition("_")
    return end in ("low", "high") and of in values


class MetricsFile(Callback):
    """Writes one row of ``metrics.csv`` per epoch, from the ``epoch_metrics`` of the learner.

    Args:
        path: path of the file. A resumed run replaces the rows of the epochs that it repeats.
        log_memory: add the column ``peak_mb``.
    """

    def __init__(self, path: Path, *, log_memory: bool = False) -> None:
        self._path, self._log_memory = path, log_memory
        self._start = 0.0
        self._before = 0.0  # seconds of the epoch before this process resumed it

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint stores."""
        return {"seconds": time.monotonic() - self._start}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._before = state_dict["seconds"]

    def on_fit_start(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        """Report a damaged log before an epoch is trained, not after it."""
        self._read()

    def on_train_start(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        """Go on with an epoch that was resumed; at the start of another the clock is reset."""
        self._start = time.monotonic() - self._before

    def on_train_epoch_start(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        self._start = time.monotonic()

    def on_train_epoch_end(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        """Write the row; of several devices, only the first writes."""
        if not trainer.is_global_zero:
            return
        values: dict[str, float] = {
            **learner.epoch_metrics(),  # type: ignore[operator]
            "lr": trainer.optimizers[0].param_groups[0]["lr"],
            "seconds": time.monotonic() - self._start,
        }
        if self._log_memory:
            values["peak_mb"] = _peak_mb()
        epoch = trainer.current_epoch + 1
        row = {"epoch": str(epoch), "step": str(trainer.global_step)}
        row |= {name: f"{value:.6g}" for name, value in values.items()}
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, fieldnames=list(row), restval="nan")
        writer.writeheader()
        writer.writerows([*(old for old in self._read() if int(old["epoch"]) < epoch), row])
        write_text(self._path, text.getvalue())
        for logger in trainer.loggers:
            logger.log_metrics(values, step=epoch)

    def _read(self) -> list[dict[str, str]]:
        """The rows of earlier epochs; raises an error if they are not those of a training."""
        if not self._path.is_file():
            return []
        try:
            with self._path.open(newline="", encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
            for row in rows:
                int(row["epoch"])
                if None in row:
                    raise ValueError("a line with more cells than the header")
        except (OSError, KeyError, TypeError, ValueError, csv.Error) as error:
            reason = because(error, remedy="delete it and resume, the model stays the same")
            raise RunError(f"{self._path}: cannot be continued {reason}") from error
        return rows


def _peak_mb() -> float:
    """Peak memory so far: of the GPU if there is one, otherwise of this process."""
    if pick_device().type == "cuda":
        return torch.cuda.max_memory_allocated() / 1e6
    if sys.platform == "win32":  # not available there
        return math.nan
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB; bytes on macOS
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


class EqualNorms(Callback):
    """Keeps the statistics of BatchNorms equal on all devices, so that all select alike."""

    def on_train_batch_end(
        self, trainer: L.Trainer, learner: L.LightningModule, *args: Any
    ) -> None:
        if trainer.world_size > 1:
            average_norms(learner)


class StopOtherDevices(Callback):
    """Ends the processes of the other devices after an error, which would wait forever."""

    def on_exception(
        self, trainer: L.Trainer, learner: L.LightningModule, exception: BaseException
    ) -> None:
        kill = getattr(trainer.strategy.launcher, "kill", None)
        if kill is not None and trainer.is_global_zero:
            kill(signal.SIGKILL)
