"""Balance classes that have very different numbers of training images.

Letters: B images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ips.tasks import LOPSIDED, Classification, Task

_LARGEST = 10  # ratio of two weights: a single rare image should not decide the training

Labels = Sequence[Mapping[str, Tensor]]


def lopsided_classes(labels: Labels, tasks: Mapping[str, Task]) -> str | None:
    """The most lopsided task in words, such as "grade: 90 images of low, 10 of high", if any is.

    Only questions with two answers count: with many classes, large weights of a few rare images
    keep a training from beginning.
    """
    worst, words = 0.0, None
    for name, task in _classifications(tasks):
        counts = task.answer_counts(_stacked(labels, name))
        for question, row in enumerate(counts.tolist()):
            ratio = _lopsided_ratio(row)
            if ratio > worst:
                present = [count for count in row if count]
                few, many = row.index(min(present)), row.index(max(present))
                names = task.class_names
                if task.kind == "multilabel":
                    names = [f"not {names[question]}", names[question]]
                worst = ratio
                words = f"{name}: {row[many]} images of {names[many]}, {row[few]} of {names[few]}"
    return words


def class_weights(
    labels: Labels, tasks: Mapping[str, Task], *, only_lopsided: bool = False
) -> dict[str, Tensor]:
    """The weight of each answer of each task, in the shape of `Classification.answer_counts`.

    Weights are inverse to the number of training images, but the largest is at most 10 times the
    smallest. Their mean over the training images is 1, so that the learning rate keeps its meaning.

    Args:
        only_lopsided: answers to other questions than those of `lopsided_classes` all weigh 1.
    """
    weights = {}
    for name, task in _classifications(tasks):
        counts = task.answer_counts(_stacked(labels, name)).double()
        inverse = 1 / counts.clamp(min=1)
        inverse = inverse.clamp(max=_LARGEST * inverse.amin(dim=1, keepdim=True))
        mean = (inverse * counts).sum(dim=1, keepdim=True) / counts.sum(dim=1, keepdim=True)
        weights[name] = (inverse / mean).float()
        if only_lopsided:
            others = [_lopsided_ratio(row) == 0 for row in counts.tolist()]
            weights[name][others] = 1
    return weights


def image_weights(labels: Labels, tasks: Mapping[str, Task]) -> Tensor:
    """How often to draw each training image, ``(B,)``: by its rarest answer, mean over tasks.

    Without a label, it is drawn as often as the average image.
    """
    weights = class_weights(labels, tasks)
    drawn = []
    for name, task in _classifications(tasks):
        rows = _stacked(labels, name)
        known, chance = task.known(rows), torch.ones(len(rows))
        chance[known] = task.answer_weights(weights[name], rows[known]).amax(dim=1)
        drawn.append(chance)
    return torch.stack(drawn).mean(dim=0)


def _classifications(tasks: Mapping[str, Task]) -> list[tuple[str, Classification]]:
    """The tasks that have classes."""
    return [(name, task) for name, task in tasks.items() if isinstance(task, Classification)]


def _lopsided_ratio(counts: Sequence[float]) -> float:
    """How lopsided a question with two answers is; 0 if it is not, or has more answers."""
    present = [count for count in counts if count]
    if len(present) != 2:
        return 0
    ratio = max(present) / min(present)
    return ratio if ratio >= LOPSIDED else 0


def _stacked(labels: Labels, task: str) -> Tensor:
    return torch.stack([row[task] for row in labels])
