"""The predictions of a model for images with labels, and their CSV file.

Letters: n images, B of them in a batch, C columns of a prediction, such as classes.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ips.config import Config
from ips.files import atomic_write
from ips.statistics import Bools, Floats, Integers
from ips.tasks import Answer, Classification, Kind, Task, build_tasks

PURPOSE = "For research, not for diagnosis."
"""What reports and the viewer say beside predictions."""

_COLUMNS = ["number", "image", "task", "class", "truth", "probability"]


@dataclass(frozen=True)
class TaskPredictions:
    """The predictions of one task.

    Attributes:
        name: name of the task.
        task: kind and classes of the task.
        labels: what `Task.targets` returns: the classes of each image, bools ``(n, C)``; the
            number of a regression ``(n, 1)``; time and event of survival ``(n, 2)``.
        probabilities: ``(n, C)``: class probabilities; two columns for a binary task; a single
            number for a regression.
        known: ``(n,)``: whether an image has a label; None if all have.
        groups: ``(n,)``: number of the patient or group of each image, over which intervals are
            computed by bootstrap; None for intervals that take images as independent.
    """

    name: str
    task: Task
    labels: npt.NDArray[Any]
    probabilities: Floats
    known: Bools | None = None
    groups: Integers | None = None

    @property
    def kind(self) -> Kind:
        return self.task.kind

    @property
    def has_label(self) -> Bools:
        """``(n,)``: whether an image has a label."""
        return np.ones(len(self.labels), dtype=bool) if self.known is None else self.known

    def labelled(self) -> TaskPredictions:
        """The predictions for images that have a label."""
        return replace(self.rows(np.flatnonzero(self.has_label)), known=None)

    def rows(self, numbers: Integers) -> TaskPredictions:
        """The predictions for some images, which may occur several times."""
        return replace(
            self,
            labels=self.labels[numbers],
            probabilities=self.probabilities[numbers],
            known=None if self.known is None else self.known[numbers],
            groups=None if self.groups is None else self.groups[numbers],
        )

    @property
    def classes(self) -> list[str]:
        return self.task.class_names

    def names(self, chosen: Bools) -> str:
        """Names of the classes that are True in ``(C,)``."""
        return ", ".join(np.array(self.classes)[chosen]) or "none"

    @property
    def has_classes(self) -> bool:
        return isinstance(self.task, Classification)

    def answer_text(self, number: int) -> str:
        """The answer to an image, in words."""
        row = torch.from_numpy(self.probabilities[number])
        return _words(self.task.answer(row))

    def exact_truth(self, number: int) -> str:
        """The label of an image without classes, as `Task.read_truth` reads it."""
        truth = self.task.truth(torch.from_numpy(self.labels[number]))
        return f"{truth:.7g}" if isinstance(truth, float) else str(truth)

    def truth_text(self, number: int) -> str:
        """The label of an image, in words."""
        return _words(self.task.truth(torch.from_numpy(self.labels[number])))

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
    def errors(self) -> Floats:
        """``(n,)``: how wrong each prediction is, see `Task.errors`; 0 without a label."""
        found, known = np.zeros(len(self.labels)), self.has_label
        rows = (torch.from_numpy(part[known]) for part in (self.probabilities, self.labels))
        found[known] = self.task.errors(*rows).numpy()
        return found


@dataclass(frozen=True)
class TestPredictions:
    """The predictions of all tasks; ``images`` are the names of the test images, in order."""

    __test__ = False  # pytest would collect it

    images: list[str]
    tasks: list[TaskPredictions]

    def best_and_worst(self, count: int) -> tuple[list[int], list[int]]:
        """Numbers of correct images and of wrong images, at most ``count`` of each.

        An image is correct if all its tasks with classes and a label are. Without tasks with
        classes, the half of the images with the smaller errors counts as correct. Correct images
        are sorted by ascending error, wrong ones by descending error.
        """
        known = np.array([task.has_label for task in self.tasks])  # (T, n)
        errors = np.array([task.errors for task in self.tasks])
        mean = errors.sum(axis=0) / np.maximum(known.sum(axis=0), 1)
        decided = [task.correct | ~task.has_label for task in self.tasks if task.has_classes]
        correct = np.all(decided, axis=0) if decided else mean <= np.median(mean)
        order = [i for i in np.argsort(mean, kind="stable").tolist() if known[:, i].any()]
        best = [i for i in order if correct[i]]
        worst = [i for i in reversed(order) if not correct[i]]
        return best[:count], worst[:count]


def average_groups(
    predictions: TestPredictions, groups: Mapping[str, Sequence[int]]
) -> TestPredictions:
    """The mean probabilities of the images of each group, such as a patient.

    Args:
        predictions: predictions for images.
        groups: numbers of the images of each group; their labels agree, as far as they have one.
    """
    tasks = []
    for task in predictions.tasks:
        first = [max(numbers, key=lambda i: bool(task.has_label[i])) for numbers in groups.values()]
        mean = [task.probabilities[numbers].mean(axis=0) for numbers in map(list, groups.values())]
        known = None if task.known is None else task.known[first]
        tasks.append(
            TaskPredictions(task.name, task.task, task.labels[first], np.array(mean), known)
        )
    return TestPredictions(list(groups), tasks)


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
            self._labels[name].append(task.targets(labels[name].cpu()))
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
                for i, (name, p) in enumerate(zip(task.classes, probabilities, strict=True)):
                    truth = str(int(labels[i])) if task.has_classes else task.exact_truth(number)
                    row = [number, image, task.name, name, truth if known else ""]
                    writer.writerow([*row, f"{p:.9g}"])  # a float32 has nine significant digits


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
        values = np.array([float(row[5]) for row in rows])
    except (OSError, ValueError, IndexError, csv.Error):
        return None
    if header != _COLUMNS or not complete or not images:
        return None
    probabilities = values.reshape(len(images), len(columns))  # (n, columns of all tasks)
    truths = np.array([row[4] for row in rows]).reshape(probabilities.shape)
    predictions, start = [], 0
    for name, task in tasks.items():
        part = slice(start, start + len(task.class_names))
        start = part.stop
        labels = _read_truths(task, truths[:, part])
        p = probabilities[:, part]
        outside = task.has_probabilities and not ((p >= 0) & (p <= 1)).all()
        if labels is None or outside or not np.isfinite(p).all():
            return None
        known = (truths[:, part] != "").all(axis=1)
        predictions.append(TaskPredictions(name, task, labels, p, known))
    return TestPredictions(images, predictions)


def _read_truths(task: Task, cells: npt.NDArray[np.str_]) -> npt.NDArray[Any] | None:
    """Labels ``(n, ...)`` from the cells ``(n, C)`` of a file; None if it is damaged."""
    if isinstance(task, Classification):
        return cells == "1" if np.isin(cells, ("0", "1", "")).all() else None
    try:
        return np.array([task.read_truth(text) for text in cells[:, 0].tolist()])
    except ValueError:
        return None


def _words(answer: Answer) -> str:
    if isinstance(answer, float):
        return f"{answer:.4g}"
    return answer if isinstance(answer, str) else ", ".join(answer) or "none"
