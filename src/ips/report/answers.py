"""What a model answered to the test images and what is true, as arrays and as a table in a file.

Letters: n images, C classes.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from ips.config import Config, TaskConfig
from ips.report.statistics import Bools, Floats

_COLUMNS = ["number", "image", "task", "class", "truth", "probability"]


@dataclass(frozen=True)
class TaskAnswers:
    """The answers of one task.

    Attributes:
        name: of the task.
        kind: multiclass, multilabel or binary; a binary task has two classes here, no and yes.
        classes: their names.
        truth: ``(n, C)``, one class an image or, of a multi-label task, any number.
        probabilities: ``(n, C)``.
    """

    name: str
    kind: str
    classes: list[str]
    truth: Bools
    probabilities: Floats

    @property
    def answered(self) -> Bools:
        """``(n, C)``: the likeliest class, or all labels above a half, as the test counts them."""
        if self.kind == "multilabel":
            return self.probabilities > 0.5
        top = self.probabilities.argmax(axis=1)
        likeliest: Bools = np.arange(len(self.classes)) == top[:, None]
        return likeliest

    @property
    def right(self) -> Bools:
        """``(n,)``: whether the class, or every label, is right."""
        whole: Bools = (self.answered == self.truth).all(axis=1)
        return whole

    @property
    def surprise(self) -> Floats:
        """``(n,)``: cross-entropy, small where the truth was said with confidence."""
        loss: Floats = -np.log(np.clip(self.probabilities, 1e-12, 1)) * self.truth  # (n, C)
        if self.kind == "multilabel":
            loss -= np.log(np.clip(1 - self.probabilities, 1e-12, 1)) * ~self.truth
            loss /= len(self.classes)
        whole: Floats = loss.sum(axis=1)
        return whole


@dataclass(frozen=True)
class Answers:
    """The answers of all tasks to ``images``, which are named in the order of the test."""

    images: list[str]
    tasks: list[TaskAnswers]

    def ranked(self, count: int) -> tuple[list[int], list[int]]:
        """Numbers of the images answered rightly and wrongly, at most ``count``, surest first.

        An image is right if all its tasks are. Among the right ones those come first that the
        model was surest of, among the wrong ones those that it was most wrong about.
        """
        right = np.all([task.right for task in self.tasks], axis=0)
        order = np.argsort(np.mean([task.surprise for task in self.tasks], axis=0), kind="stable")
        best = [int(i) for i in order if right[i]]
        worst = [int(i) for i in order[::-1] if not right[i]]
        return best[:count], worst[:count]


def class_names(task: TaskConfig) -> list[str]:
    """What the classes of a task are called, their numbers where they have no names."""
    count = 2 if task.kind == "binary" else task.classes
    return task.names or [str(number) for number in range(count)]


def write_answers(path: Path, answers: Answers) -> None:
    """A CSV with a line per image, task and class; it appears whole or not at all."""
    partial = path.with_suffix(".partial")
    with partial.open("w", newline="", encoding="utf-8", errors="replace") as file:
        writer = csv.writer(file)
        writer.writerow(_COLUMNS)
        for number, image in enumerate(answers.images):
            for task in answers.tasks:
                values = zip(
                    task.classes, task.truth[number], task.probabilities[number], strict=True
                )
                for name, true, p in values:
                    # nine digits are all that a float32 has
                    writer.writerow([number, image, task.name, name, int(true), f"{p:.9g}"])
    partial.replace(path)


def read_answers(path: Path, config: Config) -> Answers | None:
    """What ``write_answers`` wrote; None if the file is not that, or of other tasks or classes."""
    kinds = {name: class_names(task) for name, task in config.tasks.items()}
    expected = [(task, name) for task, names in kinds.items() for name in names]
    try:
        with path.open(newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file)
        images = [row[1] for row in rows[:: len(expected)]]
        wanted = product(range(len(images)), expected)
        fits = all(
            (int(row[0]), (row[2], row[3])) == place
            for row, place in zip(rows, wanted, strict=True)
        )
        values = np.array([[float(row[4]), float(row[5])] for row in rows])
    except (OSError, ValueError, IndexError):
        return None
    if header != _COLUMNS or not fits or not images:
        return None
    table = values.reshape(len(images), len(expected), 2)  # (n, classes of all tasks, 2)
    tasks, start = [], 0
    for name, classes in kinds.items():
        part = table[:, start : start + len(classes)]
        start += len(classes)
        kind = config.tasks[name].kind
        tasks.append(TaskAnswers(name, kind, classes, part[..., 0] == 1, part[..., 1]))
    return Answers(images, tasks)
