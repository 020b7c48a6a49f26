"""What a model answered to the test images and what is true, as arrays and as a table in a file.

Letters: n images, C classes.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import torch

from ips.config import Config
from ips.report.statistics import Bools, Floats
from ips.tasks import Kind, Task, build_tasks

_COLUMNS = ["number", "image", "task", "class", "truth", "probability"]


@dataclass(frozen=True)
class TaskAnswers:
    """The answers of one task.

    Attributes:
        name: of the task.
        task: its kind and classes; a binary task has two classes here, no and yes.
        truth: ``(n, C)``, one class an image or, of a multi-label task, any number.
        probabilities: ``(n, C)``.
    """

    name: str
    task: Task
    truth: Bools
    probabilities: Floats

    @property
    def kind(self) -> Kind:
        """Kind of the task."""
        return self.task.kind

    @property
    def classes(self) -> list[str]:
        """Names of the classes."""
        return self.task.class_names

    @property
    def answered(self) -> Bools:
        """``(n, C)``: the predicted classes."""
        decided: Bools = self.task.decide(torch.from_numpy(self.probabilities)).numpy()
        return decided

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
    tasks = build_tasks(config.tasks)
    expected = [(name, label) for name, task in tasks.items() for label in task.class_names]
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
    answers, start = [], 0
    for name, task in tasks.items():
        part = table[:, start : start + len(task.class_names)]
        start += len(task.class_names)
        answers.append(TaskAnswers(name, task, part[..., 0] == 1, part[..., 1]))
    return Answers(images, answers)
