"""What the batches of an epoch add up to: losses and metrics, which a checkpoint can store.

Letters: T tasks, n batches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ips.devices import double_device
from ips.tasks import Task
from ips.training.losses import constant_loss

_LISTS = ("losses", "task_losses", "spreads", "shares")


class Tally:
    """Losses and metrics of the batches so far.

    Args:
        tasks: the tasks by name.
        device: device of the metrics.

    Attributes:
        metrics: metric of each task.
        losses: of each batch in training, of each image in validation.
        task_losses: of the tasks ``(1,)``, and of the lead ``(2,)``, for each batch with labels.
        spreads: for each batch, see `ips.training.module`.
        shares: of the tasks in the losses, ``(T,)`` for each batch with labels.
        answers: sums of `Task.answer_statistics`, by task.
    """

    def __init__(self, tasks: Mapping[str, Task], device: torch.device) -> None:
        self._tasks, self._device = tasks, device
        self._metrics_device = double_device(device)
        self.metrics = {n: task.metric().to(self._metrics_device) for n, task in tasks.items()}
        self.losses: list[Tensor] = []
        self.task_losses: list[Tensor] = []
        self.spreads: list[Tensor] = []
        self.shares: list[Tensor] = []
        self.answers: dict[str, Tensor] = {}

    def add(self, logits: Mapping[str, Tensor], labels: Mapping[str, Tensor]) -> None:
        """Add the answers to a batch to the metrics."""
        for name, task in self._tasks.items():
            given = (values[name].to(self._metrics_device) for values in (logits, labels))
            task.update(self.metrics[name], *given)

    def add_labels(self, labels: Mapping[str, Tensor]) -> None:
        """Add the labels of a batch, for the loss of the best constant answer."""
        for name, task in self._tasks.items():
            found = task.answer_statistics(labels[name]).cpu()
            self.answers[name] = self.answers.get(name, 0) + found

    def scores(self) -> dict[str, float]:
        """Score of each task; nan where it is undefined, such as an AUC of a single class."""
        # Metrics compute in float32: round to six digits, so that 360 of 400 gives 0.9.
        return {
            name: round(float(metric.compute()), 6) if metric.update_called else math.nan
            for name, metric in self.metrics.items()
        }

    def loss(self) -> float:
        """Mean of the losses."""
        return float(torch.stack(self.losses).mean())

    def start_losses(self, **options: Any) -> Tensor:
        """Mean losses: of the tasks, of the lead, and of the best constant answer.

        The loss of the lead is that of the tasks if there is none. For ``options``, see
        `constant_loss`.
        """
        losses = torch.stack(self.task_losses).mean(dim=0)
        shares = torch.stack(self.shares).mean(dim=0)
        chance = constant_loss(self._tasks, self.answers, shares=shares, **options)
        return torch.stack([losses[0], losses[-1], chance.to(losses)])

    def spread(self) -> Tensor | None:
        """Mean of the spreads; None without attention."""
        return torch.stack(self.spreads).mean(dim=0) if self.spreads else None

    def state(self) -> dict[str, Any]:
        """What a checkpoint stores."""
        lists = {name: torch.stack(values) for name in _LISTS if (values := getattr(self, name))}
        metrics = {
            name: {"count": metric.update_count, "values": dict(metric.metric_state)}
            for name, metric in self.metrics.items()
        }
        return {"lists": lists, "answers": dict(self.answers), "metrics": metrics}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that was stored."""
        for name, values in state["lists"].items():
            # The shares are never on a GPU.
            setattr(self, name, list(values if name == "shares" else values.to(self._device)))
        self.answers = {name: t.cpu() for name, t in state["answers"].items()}
        for name, stored in state["metrics"].items():
            metric = self.metrics[name]
            for key, value in stored["values"].items():
                setattr(metric, key, _moved(value, self._metrics_device))
            metric._update_count = stored["count"]  # torchmetrics restores it in no other way


def _moved(value: Tensor | list[Tensor], device: torch.device) -> Tensor | list[Tensor]:
    if isinstance(value, Tensor):
        return value.to(device)
    return [tensor.to(device) for tensor in value]
