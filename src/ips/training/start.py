"""How a training starts: led by single patches until it has begun, and again if it does not begin.

A training begins suddenly or not at all. At first, attention is nearly even over
the M patches, so the few that matter get a small share of the gradient; and patches that are not
chosen teach nothing, so a poor choice stays poor. A training has begun when its loss is clearly
below that of the best constant answer, which knows how frequent the labels are and nothing else.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback

from ips.config import Config
from ips.files import write_text
from ips.training.best import BestEpoch
from ips.training.folder import RunFolder
from ips.training.model import build_model
from ips.training.module import Learner

_BEGUN = 0.8  # share of the loss of the best constant answer; below it, attention can choose
STALLED = 0.97
"""Share of the loss of the best constant answer; a training that stays above has not begun."""

_PATIENCE = 1 / 3  # share of all epochs in which a start has to begin
_FEWEST_EPOCHS = 3
_LEAD_AT_MOST = 0.6  # share of the epochs of a start

_STATE = ("starts", "epochs", "begun", "settled", "lowest", "warned")  # in a checkpoint


@dataclass(frozen=True)
class Remedy:
    """What a new start does differently.

    Attributes:
        lr: factor of the learning rate.
        words: the same for people.
    """

    lr: float
    words: str


REMEDIES = (
    Remedy(0.25, "a quarter of the learning rate"),
    Remedy(0.0625, "a sixteenth of the learning rate"),
)


class Starting(Callback):
    """Decides after every epoch who chooses the patches of the next, and whether to start again.

    It decides by the losses of the epochs so far, before the checkpoint is saved, so that a resumed
    run goes on in the same way. A new start has new weights, and the epochs that are left. To be
    called after callbacks that need the weights of the epoch, and before `Saving`.

    Args:
        config: resolved config.
        folder: run folder; its ``start.json`` lists the starts, and the epoch that began.
        best: tells whether to stop early; epochs are counted once no new start can follow.
        settled: whether attention chooses the patches from the first epoch on.
        say: prints a sentence.
    """

    def __init__(
        self,
        config: Config,
        folder: RunFolder,
        *,
        best: BestEpoch | None,
        settled: bool = False,
        say: Callable[[str], None],
    ) -> None:
        self._config, self._folder, self._best, self._say = config, folder, best, say
        self._starts = [_start(epoch=0, step=0, lr=1.0)]
        self._epochs = 0  # that are finished
        self._begun: int | None = None  # finished epochs when the loss was low for the first time
        self._settled = 0 if settled else None  # the same when attention took over
        self._lowest = math.inf  # loss since the start, as a share of the constant answer's
        self._warned = False

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint stores."""
        return {name: getattr(self, f"_{name}") for name in _STATE}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for name in _STATE:
            setattr(self, f"_{name}", state_dict[name])

    def on_train_start(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        self._apply(learner)

    def on_train_epoch_end(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        """Decide about the next epoch."""
        assert isinstance(learner, Learner)
        loss, lead, chance = learner.start_losses()  # the same on all devices
        # Without different labels there is nothing to begin.
        share = float(torch.minimum(loss, lead) / chance) if chance > 0 else 0.0
        self._lowest = min(self._lowest, share)
        self._epochs = trainer.current_epoch + 1
        epochs, first = self._config.train.epochs, self._starts[-1]["epoch"]
        trained = self._epochs - first
        if self._begun is None and loss < _BEGUN * chance:
            self._begun = self._epochs
        if self._settled is None and (self._begun or trained >= _LEAD_AT_MOST * (epochs - first)):
            self._settled = self._epochs
        if self._lowest >= STALLED and trained >= self._patience:
            found = (
                f"the model has not begun to learn: after {trained} epochs its loss is {loss:.3f}, "
                f"that of a constant answer {chance:.3f}"
            )
            if (spread := learner.attention_spread()) is not None:
                found += (
                    f", and attention is spread over {spread[0]:.1f} of {spread[1]:.0f} patches"
                )
            self._stalled(trainer, learner, found)
        self._apply(learner)
        if self._best is not None:
            if self._may_start_again:
                self._best.wait_anew()
            trainer.should_stop |= self._best.stops
        if trainer.is_global_zero:
            values = {"begun": self._begun, "starts": self._starts}
            write_text(self._folder.start, json.dumps(values, indent=2) + "\n")

    @property
    def _patience(self) -> int:
        """Epochs in which a start has to begin."""
        return max(_FEWEST_EPOCHS, math.ceil(_PATIENCE * self._config.train.epochs))

    @property
    def _may_start_again(self) -> bool:
        """Whether a new start may follow, now or after more epochs."""
        decided = max(self._epochs, self._starts[-1]["epoch"] + self._patience)
        return (
            self._lowest >= STALLED
            and len(self._starts) <= self._config.train.restarts
            and self._config.train.epochs - decided >= self._patience
        )

    def _stalled(self, trainer: L.Trainer, learner: Learner, found: str) -> None:
        if self._may_start_again:
            remedy = REMEDIES[len(self._starts) - 1]
            self._tell(trainer, f"{found}: it starts again with {remedy.words}")
            self._start_again(trainer, learner, remedy)
        elif not self._warned:
            self._warned = True
            self._tell(
                trainer,
                f"warning: {found}: try a train.lr below {self._config.train.lr}, a pretrained "
                "encoder, or more epochs or images",
            )

    def _start_again(self, trainer: L.Trainer, learner: Learner, remedy: Remedy) -> None:
        self._starts.append(_start(epoch=self._epochs, step=trainer.global_step, lr=remedy.lr))
        self._settled, self._lowest = None, math.inf
        # A seed of its own, or a start that failed would be repeated.
        torch.manual_seed(self._config.train.seed + 1_000_003 * len(self._starts))
        learner.reset(build_model(self._config))
        for optimizer in trainer.optimizers:
            optimizer.state.clear()
        self._apply(learner)
        for schedule in trainer.lr_scheduler_configs:
            _set_rates(schedule.scheduler)
        if self._best is not None:
            self._best.wait_anew()

    def _apply(self, learner: L.LightningModule) -> None:
        assert isinstance(learner, Learner)
        start = self._starts[-1]
        learner.first_step, learner.lr_factor = start["step"], start["lr"]
        learner.settled = self._settled is not None

    def _tell(self, trainer: L.Trainer, text: str) -> None:
        if trainer.is_global_zero:
            self._say(text)


def start_in_words(path: Path) -> str | None:
    """When the training of a run began, from its ``start.json``; None if that is unknown."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        begun, again = values["begun"], [start["epoch"] + 1 for start in values["starts"][1:]]
    except (OSError, ValueError, KeyError, TypeError):  # as in runs up to version 0.2
        return None
    words = "not yet: the training loss is near that of a constant answer"
    if begun is not None:
        words = f"the training loss was clearly below a constant answer's from epoch {begun} on"
    if again:
        words += f"; started again in epoch {' and '.join(map(str, again))}"
    return words


def _set_rates(schedule: Any) -> None:
    """Give the optimizer the learning rate of the next step, which a new start changes."""
    groups = zip(
        schedule.optimizer.param_groups, schedule.base_lrs, schedule.lr_lambdas, strict=True
    )
    for group, rate, factor in groups:
        group["lr"] = rate * factor(schedule.last_epoch)


def _start(*, epoch: int, step: int, lr: float) -> dict[str, Any]:
    """Epochs and steps before a start, and the factor of its learning rate."""
    return {"epoch": epoch, "step": step, "lr": lr}
