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
    """The mean loss of the tasks."""
    losses = []
    for name, task in tasks.items():
        weight = None if weights is None else weights[name]
        losses.append(task.loss(logits[name], labels[name], weights=weight, smoothing=smoothing))
    return torch.stack(losses).mean()


def constant_loss(
    tasks: Mapping[str, Task],
    answers: Mapping[str, Tensor],
    *,
    weights: Mapping[str, Tensor] | None = None,
    smoothing: float = 0.0,
) -> Tensor:
    """The mean loss of the best constant answer: the labels' frequencies as probabilities.

    A network that ignores the images can do no better. ``answers`` are the numbers of images from
    `Task.answer_counts`.
    """
    losses = []
    for name in tasks:
        share = answers[name].double()  # (questions, answers)
        share = share / share.sum(dim=1, keepdim=True)
        if weights is not None:
            share = share * weights[name].to(share)
        total = share.sum(dim=1, keepdim=True)
        target = share * (1 - smoothing) + total * smoothing / share.shape[1]
        losses.append(-torch.xlogy(target, target / total).sum(dim=1).mean())
    return torch.stack(losses).mean()
