"""When the state of a training is saved: after every epoch, every few minutes, and at SIGTERM."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback

from ips.errors import IPSError, Terminated
from ips.training.processes import gather


class Saving(Callback):
    """Saves the state, see `CheckpointFiles`; to be called after all other callbacks.

    A training that gets SIGTERM saves its state at the end of the step, and ends with `Terminated`.

    Args:
        path: path of the checkpoint.
        minutes: time after which the state is saved also within an epoch; 0 saves at every step.
    """

    def __init__(self, path: Path, *, minutes: float) -> None:
        self._path, self._seconds = path, 60 * minutes
        self._saved = 0.0
        self._terminated = False

    def on_train_start(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        """Start the clock, and replace Lightning's handler, which would end without saving."""
        self._saved = time.monotonic()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_signal)  # Lightning restores the one before

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        learner: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Save between two updates of the weights; the last batch belongs to the end of the epoch.

        Weights that are not finite end the training before they are validated or saved.
        """
        if trainer.is_last_batch:
            check_weights(trainer, learner)
        elif (batch_idx + 1) % trainer.accumulate_grad_batches == 0:
            self.between_batches(trainer, learner)

    def on_train_epoch_end(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        """Save; all devices take part and wait for each other, but only the first writes."""
        self._save(trainer)
        if any(gather(self._terminated)):
            raise Terminated

    def on_save_checkpoint(
        self, trainer: L.Trainer, learner: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Let a validation look as if it were in its first batch, or Lightning skips the rest.

        Lightning recognises it only once. The loader knows where it really is.
        """
        if trainer.validating:
            progress = checkpoint["loops"]["fit_loop"]["epoch_loop.val_loop.batch_progress"]
            for counts in (progress["total"], progress["current"]):
                counts.update(ready=1, started=1, processed=0, completed=0)

    def between_batches(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        """Save if it is time, on all devices at once; end after a signal to any of them."""
        due = time.monotonic() - self._saved >= self._seconds
        answers = gather((due, self._terminated))
        ends = any(terminated for _, terminated in answers)
        if answers[0][0] or ends:
            check_weights(trainer, learner)
            self._save(trainer)
        if ends:
            raise Terminated

    def _save(self, trainer: L.Trainer) -> None:
        trainer.save_checkpoint(self._path)
        self._saved = time.monotonic()

    def _on_signal(self, *args: Any) -> None:
        self._terminated = True


def check_weights(trainer: L.Trainer, learner: L.LightningModule) -> None:
    """Raise an error if the weights are not finite."""
    for name, tensor in learner.state_dict().items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise IPSError(
                f"the weights became infinite or not a number in epoch "
                f"{trainer.current_epoch + 1}, {name} first: {learner.hint}"
            )
