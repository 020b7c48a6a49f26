"""One step of learning, as Lightning wants it.

Letters: B images, K patches kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import lightning as L
import torch
from torch import Tensor, nn
from torchmetrics import Metric

from ips.errors import IPSError
from ips.models import Load, Net, Output
from ips.patches import PatchSource
from ips.selection import Selection
from ips.tasks import Task
from ips.training.schedule import learning_rate_factor

Batch = tuple[list[PatchSource], dict[str, Tensor]]
Seen = Callable[[Sequence[PatchSource], Output, Selection], None]


def freeze_norms(encoder: nn.Module) -> None:
    """Let BatchNorms keep their statistics."""
    for part in encoder.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.eval()


def total_loss(
    net: Net, tasks: Mapping[str, Task], output: Output, labels: Mapping[str, Tensor]
) -> Tensor:
    """The mean over tasks, plus the loss of the read-out head."""
    losses = [task.loss(output.logits[name], labels[name]) for name, task in tasks.items()]
    loss = torch.stack(losses).mean()
    if net.readout is not None:
        assert output.readout_logits is not None
        task = net.readout.task
        loss = loss + tasks[task].loss(output.readout_logits, labels[task])
    return loss


class Learner(L.LightningModule):
    """Let the model answer, compare with the labels (Algorithm 1).

    Args:
        net: the model.
        tasks: in the order of the model's heads.
        load: what of a batch is in memory at a time.
        lr, weight_decay: of AdamW.
        warmup: epochs of linear warm-up.
        seed: of the order of patches and of dropout.
        freeze_norm: keep the encoder's BatchNorms in evaluation mode.
    """

    def __init__(
        self,
        net: Net,
        tasks: Mapping[str, Task],
        *,
        load: Load,
        lr: float,
        weight_decay: float,
        warmup: float,
        seed: int,
        freeze_norm: bool = False,
    ) -> None:
        super().__init__()
        self.net, self.tasks = net, dict(tasks)
        self.load, self.lr, self.weight_decay = load, lr, weight_decay
        self.warmup, self.seed, self.freeze_norm = warmup, seed, freeze_norm
        # Metrics keep no state from one epoch to the next: nothing of theirs is saved.
        self.metrics: dict[str, Metric] = {}
        self.losses: list[Tensor] = []
        self.seen: Seen | None = None  # is shown what is tested

    def on_train_epoch_start(self) -> None:
        """Start the epoch's sums; freeze what is to stay frozen."""
        self._reset()
        if self.freeze_norm:
            freeze_norms(self.net.encoder)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Loss of a batch."""
        sources, labels = batch
        # The step's number alone decides what is random in it, so that a resumed run goes on
        # exactly as an uninterrupted one.
        torch.manual_seed(self.seed * 1_000_003 + self.global_step)
        output = self.net.learn(
            sources,
            load=self.load,
            seed=self.seed + self.global_step,
            progress=self.global_step / self.trainer.estimated_stepping_batches,
        )
        loss = total_loss(self.net, self.tasks, output, labels)
        if not math.isfinite(value := loss.item()):
            raise IPSError(
                f"the loss became {value} in step {self.global_step}: lower train.lr={self.lr}, "
                "or look for broken images or labels"
            )
        self._count(output, labels)
        self.losses.append(loss.detach())
        return loss

    def on_test_epoch_start(self) -> None:
        """Start the test's sums."""
        self._reset()

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Add a batch to the test scores; each patch is embedded once."""
        sources, labels = batch
        output, selection = self.net.answer(sources, load=self.load, seed=self.seed)
        if self.seen is not None:
            self.seen(sources, output, selection)
        self._count(output, labels)

    def scores(self) -> dict[str, float]:
        """Task name to score, over what has been counted since the epoch or the test began."""
        # 360 of 400 is 0.9: the metrics count in float32, of which six digits hold
        return {name: round(float(m.compute()), 6) for name, m in self.metrics.items()}

    def configure_optimizers(self) -> Any:
        """AdamW; the learning rate is set anew at every step."""
        optimizer = torch.optim.AdamW(
            self.net.parameters(), lr=self.lr, weight_decay=self.weight_decay
        )
        total = int(self.trainer.estimated_stepping_batches)
        epochs = self.trainer.max_epochs
        assert epochs is not None
        warmup = min(round(self.warmup * total / epochs), total)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: learning_rate_factor(step, warmup=warmup, total=total)
        )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }

    def _reset(self) -> None:
        self.metrics = {name: task.metric().to(self.device) for name, task in self.tasks.items()}
        self.losses = []

    def _count(self, output: Output, labels: Mapping[str, Tensor]) -> None:
        for name, task in self.tasks.items():
            task.update(self.metrics[name], output.logits[name], labels[name])
