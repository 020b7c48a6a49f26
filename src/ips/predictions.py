"""The predictions of a model for images with labels, and their CSV file.

Letters: n images, B of them in a batch, C classes.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ips.config import Config
from ips.files import atomic_write
from ips.statistics import Bools, Floats
from ips.tasks import Classification, Kind, Task, build_tasks

_COLUMNS = ["number", "image", "task", "class", "truth", "probability"]


@dataclass(frozen=True)
class TaskPredictions:
    """The predictions of one task.

    Attributes:
        name: name of the task.
        task: kind and classes of the task.
        labels: ``(n, C)``: one class per image, or any number of labels of a multilabel task.
        probabilities: ``(n, C)``: class probabilities; two columns for a binary task.
        known: ``(n,)``: whether an image has a label; None if all have.
    """

    name: str
    task: Task
    labels: Bools
    probabilities: Floats
    known: Bools | None = None

    @property
    def kind(self) -> Kind:
        return self.task.kind

    @property
    def has_label(self) -> Bools:
        """``(n,)``: whether an image has a label."""
        return np.ones(len(self.labels), dtype=bool) if self.known is None else self.known

    def labelled(self) -> TaskPredictions:
        """The predictions for images that have a label."""
        labels, probabilities = self.labels[self.has_label], self.probabilities[self.has_label]
        return replace(self, labels=labels, probabilities=probabilities, known=None)

    @property
    def classes(self) -> list[str]:
        return self.task.class_names

    def names(self, chosen: Bools) -> str:
        """Names of the classes that are True in ``(C,)``."""
        return ", ".join(np.array(self.classes)[chosen]) or "none"

    @property
    def predicted(self) -> Bools:
        """``(n, C)``: the predicted classes."""
        assert isinstance(self.task, Classification)
        decisions: Bools = self.task.decide(torch.from_numpy(self.probabilities)).numpy()
        return decisions

    @property
    def correct(self) -> Bools:
        """``(n,)``: whether the class, or every label, is predicted correctly."""
        correct: Bools = (self.predicted == self.labels).all(axis=1)
        return correct

    @property
    def only_class(self) -> str | None:
        """What all images have in common, if their labels are all equal."""
        assert isinstance(self.task, Classification)
        return self.task.only_class(torch.from_numpy(self.labels))

    @property
    def cross_entropy(self) -> Floats:
        """``(n,)``: cross-entropy of the labels, the mean over labels of a multilabel task."""
        loss: Floats = -np.log(np.clip(self.probabilities, 1e-12, 1)) * self.labels  # (n, C)
        if self.kind == "multilabel":
            loss -= np.log(np.clip(1 - self.probabilities, 1e-12, 1)) * ~self.labels
            loss /= len(self.classes)
        total: Floats = loss.sum(axis=1)
        return total


@dataclass(frozen=True)
class TestPredictions:
    """The predictions of all tasks; ``images`` are the names of the test images, in order."""

    __test__ = False  # pytest would collect it

    images: list[str]
    tasks: list[TaskPredictions]

    def best_and_worst(self, count: int) -> tuple[list[int], list[int]]:
        """Numbers of correct images and of wrong images, at most ``count`` of each.

        An image is correct if all its tasks with a label are. Correct images are sorted by
        ascending cross-entropy, wrong ones by descending cross-entropy.
        """
        known = np.array([task.has_label for task in self.tasks])  # (T, n)
        correct = np.all(np.array([task.correct for task in self.tasks]) | ~known, axis=0)
        losses = np.array([task.cross_entropy for task in self.tasks])
        mean = (losses * known).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
        order = [i for i in np.argsort(mean, kind="stable").tolist() if known[:, i].any()]
        best = [i for i in order if correct[i]]
        worst = [i for i in reversed(order) if not correct[i]]
        return best[:count], worst[:count]


class PredictionCollector:
    """Collects the predictions for images that are added batch by batch."""

    def __init__(self, tasks: Mapping[str, Task]) -> None:
        self._tasks = tasks
        self._images: list[str] = []
        self._probabilities: dict[str, list[Tensor]] = {name: [] for name in tasks}
        self._labels: dict[str, list[Tensor]] = {name: [] for name in tasks}
        self._known: dict[str, list[Tensor]] = {name: [] for name in tasks}

    def add(
        self, images: Sequence[str], logits: Mapping[str, Tensor], labels: Mapping[str, Tensor]
    ) -> None:
        """Add B images, their ``(B, outputs)`` logits of each task, and their labels."""
        self._images += images
        for name, task in self._tasks.items():
            p = task.activation(logits[name].detach().float()).cpu()
            self._probabilities[name].append(task.class_probabilities(p.double()))
            self._labels[name].append(task.targets(labels[name]).cpu())
            self._known[name].append(task.known(labels[name]).cpu())

    def predictions(self) -> TestPredictions:
        """The predictions so far; there must be at least one."""
        tasks = [
            TaskPredictions(
                name,
                task,
                torch.cat(self._labels[name]).numpy(),
                torch.cat(self._probabilities[name]).numpy(),
                torch.cat(self._known[name]).numpy(),
            )
            for name, task in self._tasks.items()
        ]
        return TestPredictions(list(self._images), tasks)


def write_predictions(path: Path, predictions: TestPredictions) -> None:
    """Write a CSV with a line per image, task and class, atomically.

    The truth of an image without a label is empty.
    """
    with (
        atomic_write(path) as stream,
        # A file name may hold bytes that are not valid Unicode.
        io.TextIOWrapper(stream, encoding="utf-8", errors="replace", newline="") as text,
    ):
        writer = csv.writer(text)
        writer.writerow(_COLUMNS)
        for number, image in enumerate(predictions.images):
            for task in predictions.tasks:
                labels, probabilities = task.labels[number], task.probabilities[number]
                known = task.has_label[number]
                for name, label, p in zip(task.classes, labels, probabilities, strict=True):
                    truth = int(label) if known else ""
                    # A float32 has nine significant digits.
                    writer.writerow([number, image, task.name, name, truth, f"{p:.9g}"])


def read_predictions(path: Path, config: Config) -> TestPredictions | None:
    """Read what `write_predictions` wrote; None for other tasks or classes, or a damaged file."""
    tasks = build_tasks(config.tasks)
    columns = [(name, label) for name, task in tasks.items() for label in task.class_names]
    try:
        with path.open(newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file)
        images = [row[1] for row in rows[:: len(columns)]]
        expected = product(range(len(images)), columns)
        complete = all(
            (int(row[0]), (row[2], row[3])) == key for row, key in zip(rows, expected, strict=True)
        )
        values = np.array([[float(row[4] or "nan"), float(row[5])] for row in rows])
    except (OSError, ValueError, IndexError, csv.Error):
        return None
    if header != _COLUMNS or not complete or not images:
        return None
    labels, probabilities = values.T
    truths = np.isin(labels, (0, 1)) | np.isnan(labels)
    if not (truths.all() and ((probabilities >= 0) & (probabilities <= 1)).all()):
        return None
    table = values.reshape(len(images), len(columns), 2)  # (n, classes of all tasks, 2)
    predictions, start = [], 0
    for name, task in tasks.items():
        part = table[:, start : start + len(task.class_names)]
        start += len(task.class_names)
        known = ~np.isnan(part[..., 0]).any(axis=1)
        predictions.append(TaskPredictions(name, task, part[..., 0] == 1, part[..., 1], known))
    return TestPredictions(images, predictions)
