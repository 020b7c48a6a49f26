"""Keep the weights of the best epoch on the validation images, and stop when none is better.

These weights are a file of their own beside the checkpoints. A checkpoint names the epoch that is
the best so far, so the two need not be written at once: a run that is killed in between repeats
the epoch, and writes the file again.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import lightning as L
from lightning.pytorch.callbacks import Callback
from safetensors import SafetensorError

from ips.errors import RunError, because
from ips.models import Net
from ips.nn.weights_file import read_weights, write_weights
from ips.training.folder import RunFolder
from ips.training.module import Learner

Monitor = Literal["score", "loss"]


class BestEpoch(Callback):
    """Saves the weights of the best epoch; to be called before `Saving`.

    `Starting` stops the training if ``stops`` is still true after it has decided about a new start.

    Args:
        folder: run folder.
        monitor: ``score`` is the mean validation score of all tasks; of equal scores, that with the
            lower loss is better. ``loss`` is the validation loss.
        patience: number of epochs without improvement after which training stops; None for never.

    Attributes:
        epoch: number of the best epoch so far, counted from 1.
        score: its validation score; nan if that is undefined, so that only the loss counts.
        loss: its validation loss.
    """

    def __init__(self, folder: RunFolder, *, monitor: Monitor, patience: int | None) -> None:
        self._folder, self._monitor, self._patience = folder, monitor, patience
        self.epoch, self.score, self.loss = 0, math.nan, math.inf
        self._earlier = 0  # the best epoch of the checkpoint before
        self._waited = 0

    @property
    def stops(self) -> bool:
        """Whether the last epochs brought no improvement."""
        return self._patience is not None and self._waited >= self._patience

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint stores."""
        found = {"epoch": self.epoch, "score": self.score, "loss": self.loss}
        return {**found, "earlier": self._earlier, "waited": self._waited}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.epoch, self.score, self.loss, self._earlier, self._waited = (
            state_dict[key] for key in ("epoch", "score", "loss", "earlier", "waited")
        )

    def wait_anew(self) -> None:
        """Count the epochs without improvement from now on."""
        self._waited = 0

    def on_train_start(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        """Train no further if the run was killed after it had stopped."""
        trainer.should_stop |= self.stops

    def on_train_epoch_start(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        """Remove weights that belong to neither the last checkpoint nor the one before."""
        if not trainer.is_global_zero:
            return
        needed = {self._folder.best(epoch) for epoch in (self.epoch, self._earlier)}
        for path in set(self._folder.all_best()) - needed:
            path.unlink(missing_ok=True)

    def on_train_epoch_end(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        """Save the weights if they are better than those of all epochs before."""
        assert isinstance(learner, Learner)
        defined = [s for s in learner.validation_scores().values() if not math.isnan(s)]
        score = sum(defined) / len(defined) if defined else math.nan
        loss = learner.validation_loss()
        self._earlier, self._waited = self.epoch, self._waited + 1
        if self._rank(score, loss) > self._rank(self.score, self.loss):
            self.epoch, self.score, self.loss = trainer.current_epoch + 1, score, loss
            self._waited = 0
            if trainer.is_global_zero:
                self._write(learner.net)

    def _write(self, net: Net) -> None:
        path = self._folder.best(self.epoch)
        path.parent.mkdir(parents=True, exist_ok=True)
        shown = None if math.isnan(self.score) else self.score  # JSON has no nan
        facts = {"epoch": self.epoch, "score": shown, "loss": self.loss}
        write_weights(path, net.state_dict(), config=facts)

    def _rank(self, score: float, loss: float) -> tuple[float, float]:
        """What epochs are compared by; larger is better."""
        known = self._monitor == "score" and not math.isnan(score)
        return score if known else -math.inf, -loss

    def load_into(self, net: Net) -> None:
        """Give a model the weights of the best epoch."""
        path = self._folder.best(self.epoch)
        remedy = f"delete the folder {path.parent} to train from the start"
        try:
            state, _ = read_weights(path)
            net.load_state_dict(state)
        except (SafetensorError, OSError, RuntimeError) as error:
            raise RunError(
                f"{path}: damaged or unreadable {because(error, remedy=remedy)}"
            ) from error
