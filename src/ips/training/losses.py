"""The loss of a training step, and that of an answer which ignores the image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ips.models import Net, Output
from ips.tasks import Task


def total_loss(
    net: Net,
    tasks: Mapping[str, Task],
    output: Output,
    labels: Mapping[str, Tensor],
    *,
    weights: Mapping[str, Tensor] | None = None,
    smoothing: float = 0.0,
) -> Tensor:
    """The mean loss of the tasks, plus the loss of the patch-level head.

    For ``weights`` of the classes by task, and ``smoothing``, see `Task.loss`.
    """
    options: dict[str, Any] = {"weights": weights, "smoothing": smoothing}
    loss = mean_loss(tasks, output.logits, labels, **options)
    if net.readout is not None:
        assert output.readout_logits is not None
        name = net.readout.task
        logits = {name: output.readout_logits}
        loss = loss + mean_loss({name: tasks[name]}, logits, labels, **options)
    return loss


def mean_loss(
    tasks: Mapping[str, Task],
    logits: Mapping[str, Tensor],
    labels: Mapping[str, Tensor],
    *,
    weights: Mapping[str, Tensor] | None = None,
    smoothing: float = 0.0,
) -> Tensor:
    """The mean loss of the tasks that a batch has labels for; 0 without any."""
    losses = []
    for name, task in tasks.items():
        weight = None if weights is None else weights.get(name)
        losses.append(task.loss(logits[name], labels[name], weights=weight, smoothing=smoothing))
    taught = sum(task.teaches(labels[name]) for name, task in tasks.items())
    if taught == len(losses):
        return torch.stack(losses).mean()
    return torch.stack(losses).sum() / max(taught, 1)  # the others are 0


def task_shares(tasks: Mapping[str, Task], labels: Mapping[str, Tensor]) -> Tensor:
    """The share of each of T tasks in `mean_loss` of a batch, ``(T,)``; 0 without any label."""
    taught = torch.tensor([float(task.teaches(labels[name])) for name, task in tasks.items()])
    return taught / taught.sum().clamp(min=1)


def constant_loss(
    tasks: Mapping[str, Task],
    answers: Mapping[str, Tensor],
    *,
    shares: Tensor | None = None,
    weights: Mapping[str, Tensor] | None = None,
    smoothing: float = 0.0,
) -> Tensor:
    """The mean loss of the best constant answer, such as the labels' frequencies.

    A network that ignores the images can do no better.

    Args:
        answers: sums of `Task.answer_statistics` over all batches, by task.
        shares: mean of `task_shares` over these batches; None for equal ones.
    """
    if shares is None:
        shares = torch.full((len(tasks),), 1 / len(tasks))
    total = torch.zeros((), dtype=torch.float64)
    for (name, task), share in zip(tasks.items(), shares.tolist(), strict=True):
        weight = None if weights is None else weights.get(name)
        if share:
            found = task.constant_loss(answers[name], weights=weight, smoothing=smoothing)
            total += share * found
    return total
