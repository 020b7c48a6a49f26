"""How a training starts: led by single patches until it has begun, and again if it does not begin.

A training begins suddenly or not at all (docs/starting.md). At first, attention is nearly even over
the M patches, so the few that matter get a small share of the gradient; and patches that are not
chosen teach nothing, so a poor choice stays poor. A training has begun when its loss is clearly
below that of the best constant answer, which knows how frequent the labels are and nothing else.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
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

# Shares of the loss of the best constant answer.
_BEGUN = 0.8  # below it, attention can choose the patches
_STALLED = 0.97  # a training that stays above it has not begun

_PATIENCE = 0.3  # share of all epochs in which a start has to begin
_FEWEST_EPOCHS = 3
_LEAD_AT_MOST = 0.6  # share of the epochs of a start


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
    """Ends the lead of single patches, and starts a training again that has not begun.

    Both are decided by the losses of an epoch. A checkpoint stores them, so that a resumed run
    decides the same. A new start has new weights, and the epochs that are left.

    Args:
        config: resolved config.
        folder: run folder; its ``start.json`` lists the starts, and the epoch that began.
        best: the epochs without improvement are counted from each start.
        say: prints a sentence.
    """

    def __init__(
        self,
        config: Config,
        folder: RunFolder,
        *,
        best: BestEpoch | None,
        say: Callable[[str], None],
    ) -> None:
        self._config, self._folder, self._best, self._say = config, folder, best, say
        self._starts = [_start(epoch=0, step=0, lr=1.0)]
        self._leads = config.train.start == "patches"
        self._begun: int | None = None  # the epoch, counted from 1
        self._lowest = math.inf  # loss since the start, as a share of the constant answer's
        self._losses = math.nan, math.nan  # of the last epoch, and of the constant answer
        self._warned = False

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint stores."""
        return {
            "starts": self._starts,
            "begun": self._begun,
            "leads": self._leads,
            "lowest": self._lowest,
            "losses": self._losses,
            "warned": self._warned,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._starts, self._begun, self._leads, self._lowest, self._losses, self._warned = (
            state_dict[key] for key in ("starts", "begun", "leads", "lowest", "losses", "warned")
        )

    def on_train_start(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        self._apply(learner)

    def on_train_batch_end(
        self, trainer: L.Trainer, learner: L.LightningModule, outputs: Any, *args: Any
    ) -> None:
        """Note the losses of an epoch after its last batch, before its checkpoint is saved."""
        if not trainer.is_last_batch:
            return
        assert isinstance(learner, Learner)
        loss, lead, chance = trainer.strategy.reduce(learner.start_losses(), reduce_op="mean")
        self._losses = float(loss), float(chance)
        # Without different labels there is nothing to begin.
        share = float(torch.minimum(loss, lead) / chance) if chance > 0 else 0.0
        self._lowest = min(self._lowest, share)
        if self._begun is None and loss < _BEGUN * chance:
            self._begun = trainer.current_epoch + 1
        if trainer.is_global_zero:
            found = {"begun": self._begun, "starts": self._starts}
            write_text(self._folder.start, json.dumps(found, indent=2) + "\n")

    def on_train_epoch_start(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        """Decide by the epochs so far who chooses the patches, and whether to start again."""
        epochs, epoch = self._config.train.epochs, trainer.current_epoch
        trained = epoch - self._starts[-1]["epoch"]
        if not trained:
            return
        of_start = epochs - self._starts[-1]["epoch"]
        if self._begun is not None or trained >= _LEAD_AT_MOST * of_start:
            self._leads = False
        patience = max(_FEWEST_EPOCHS, math.ceil(_PATIENCE * epochs))
        if self._lowest >= _STALLED and trained >= patience:
            self._stalled(trainer, learner, enough_left=epochs - epoch >= patience)
        self._apply(learner)

    def _stalled(
        self, trainer: L.Trainer, learner: L.LightningModule, *, enough_left: bool
    ) -> None:
        (loss, chance), trained = self._losses, trainer.current_epoch - self._starts[-1]["epoch"]
        found = (
            f"the training has not begun: after {trained} epochs its loss is {loss:.3f}, and that "
            f"of a constant answer {chance:.3f}"
        )
        number = len(self._starts) - 1
        if number < min(self._config.train.restarts, len(REMEDIES)) and enough_left:
            remedy = REMEDIES[number]
            self._tell(trainer, f"{found}: it starts again with {remedy.words}")
            self._start_again(trainer, learner, remedy)
        elif not self._warned:
            self._warned = True
            self._tell(
                trainer,
                f"warning: {found}: try a lower train.lr={self._config.train.lr}, a pretrained "
                "encoder, or more epochs or images",
            )

    def _start_again(self, trainer: L.Trainer, learner: L.LightningModule, remedy: Remedy) -> None:
        assert isinstance(learner, Learner)
        self._starts.append(
            _start(epoch=trainer.current_epoch, step=trainer.global_step, lr=remedy.lr)
        )
        self._leads, self._lowest = self._config.train.start == "patches", math.inf
        # A seed of its own, or a start that failed would be repeated
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
        learner.lead_chooses = self._leads

    def _tell(self, trainer: L.Trainer, text: str) -> None:
        if trainer.is_global_zero:
            self._say(text)


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
