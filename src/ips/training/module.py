"""The training and test step of a model.

Letters: B images, K patches kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ips.models import Load, Net, Output
from ips.patches import PatchSource
from ips.selection import Selection
from ips.tasks import Task
from ips.training.harness import BaseLearner
from ips.training.loading import Batch
from ips.training.schedule import learning_rate_factor

if TYPE_CHECKING:
    from torchmetrics import Metric

#: Receives the images of a batch, the model's output and the patches it rests on.
BatchObserver = Callable[[Sequence[PatchSource], Output, Selection], None]


def freeze_norms(encoder: nn.Module) -> None:
    """Put BatchNorms into evaluation mode, so that they keep their statistics."""
    for part in encoder.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.eval()


def total_loss(
    net: Net, tasks: Mapping[str, Task], output: Output, labels: Mapping[str, Tensor]
) -> Tensor:
    """The mean loss of the tasks, plus the loss of the read-out head."""
    losses = [task.loss(output.logits[name], labels[name]) for name, task in tasks.items()]
    loss = torch.stack(losses).mean()
    if net.readout is not None:
        assert output.readout_logits is not None
        task = net.readout.task
        loss = loss + tasks[task].loss(output.readout_logits, labels[task])
    return loss


class Learner(BaseLearner):
    """Trains a model on the labels of its tasks (Algorithm 1).

    Args:
        net: the model.
        tasks: tasks in the order of the model's heads.
        load: which part of a batch is in memory at a time.
        lr, weight_decay: learning rate and weight decay of AdamW.
        warmup: epochs of linear warm-up.
        seed: random seed of dropout and of the order of patches.
        freeze_norm: keep the encoder's BatchNorms in evaluation mode.
        observer: called with every batch of a test.
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
        observer: BatchObserver | None = None,
    ) -> None:
        super().__init__(seed=seed)
        self.net, self.tasks = net, dict(tasks)
        self.load, self.lr, self.weight_decay = load, lr, weight_decay
        self.warmup, self.freeze_norm, self.observer = warmup, freeze_norm, observer
        # A plain dict, so that the metrics stay out of the state_dict.
        self.metrics: dict[str, Metric] = {}
        self.losses: list[Tensor] = []

    def on_train_epoch_start(self) -> None:
        """Reset the metrics, and freeze the BatchNorms that Lightning put into training mode."""
        self._reset()
        if self.freeze_norm:
            freeze_norms(self.net.encoder)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Loss of a batch."""
        sources, labels = batch
        self.seed_step()
        output = self.net.forward_train(
            sources,
            load=self.load,
            seed=self.seed + self.global_step,
            progress=self.global_step / self.trainer.estimated_stepping_batches,
        )
        loss = total_loss(self.net, self.tasks, output, labels)
        hint = f"lower train.lr={self.lr}, or look for broken images or labels"
        self.check_finite(loss, hint=hint)
        self._update(output, labels)
        self.losses.append(loss.detach())
        return loss

    def on_test_epoch_start(self) -> None:
        """Reset the metrics."""
        self._reset()

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Add a batch to the metrics; each patch is embedded once."""
        sources, labels = batch
        output, selection = self.net.forward_eval(sources, load=self.load, seed=self.seed)
        if self.observer is not None:
            self.observer(sources, output, selection)
        self._update(output, labels)

    def scores(self) -> dict[str, float]:
        """Score of each task since the start of the epoch or of the test."""
        # Metrics count in float32: six digits, so that 360 of 400 is 0.9.
        return {name: round(float(m.compute()), 6) for name, m in self.metrics.items()}

    def epoch_metrics(self) -> dict[str, float]:
        """Mean loss, and score of each task on the training images."""
        loss = float(torch.stack(self.losses).mean())
        return {"loss": loss} | {f"train_{task}": score for task, score in self.scores().items()}

    def configure_optimizers(self) -> Any:
        """AdamW with linear warm-up and cosine decay."""
        optimizer = torch.optim.AdamW(
            self.net.parameters(), lr=self.lr, weight_decay=self.weight_decay
        )
        total, epochs = int(self.trainer.estimated_stepping_batches), self.trainer.max_epochs
        assert epochs is not None
        warmup = min(round(self.warmup * total / epochs), total)
        return self.scheduled(
            optimizer, lambda step: learning_rate_factor(step, warmup=warmup, total=total)
        )

    def _reset(self) -> None:
        self.metrics = {name: task.metric().to(self.device) for name, task in self.tasks.items()}
        self.losses = []

    def _update(self, output: Output, labels: Mapping[str, Tensor]) -> None:
        for name, task in self.tasks.items():
            task.update(self.metrics[name], output.logits[name], labels[name])
