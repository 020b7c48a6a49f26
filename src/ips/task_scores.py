"""The scores of a task, each beside that of the majority answer, and a verdict in plain words.

Letters: n images, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import Any

import numpy as np
import torch

from ips.errors import shown
from ips.predictions import TaskPredictions
from ips.statistics import (
    Bools,
    Floats,
    Interval,
    auc,
    auc_value,
    balanced_accuracy,
    bootstrap,
    f1_score,
    label_accuracy,
    macro_f1,
    mean_error,
    pearson,
    quadratic_kappa,
    quadratic_kappa_value,
    r_squared,
    r_squared_value,
    wilson,
)
from ips.survival import concordance
from ips.tasks import LOPSIDED, Regression, Survival, Task


@dataclass(frozen=True)
class Score:
    """A score beside that of the majority answer.

    Attributes:
        key: its name in a config and in ``test.json``.
        name: its name for people.
        interval: the score with its 95 % confidence interval.
        majority: the score of giving the majority answer for every image.
        undefined: why the score does not exist, if it does not.
        error: whether it is an error, so that less is better.
    """

    key: str
    name: str
    interval: Interval
    majority: float
    undefined: str = ""
    error: bool = False

    @property
    def value(self) -> float | None:
        """The score, without the rounding errors of float32; None if it does not exist."""
        return round(self.interval.value, 6) if self.interval.defined else None

    @property
    def better(self) -> bool | None:
        """Whether the whole interval is better than the score of the majority answer."""
        if not self.interval.defined:
            return None
        if self.error:
            return self.interval.high < self.majority
        return self.interval.low > self.majority

    def as_dict(self) -> dict[str, Any]:
        if not self.interval.defined:
            return {"score": None, "undefined": self.undefined}
        low, high = round(self.interval.low, 6), round(self.interval.high, 6)
        majority = round(self.majority, 6)
        numbers = {"score": self.value, "low": low, "high": high, "majority": majority}
        return {**numbers, "better": self.better}


@dataclass(frozen=True)
class TaskScores:
    """All scores of a task.

    Attributes:
        images: n.
        majority: the majority answer: the most frequent class, or labels, of these images, or the
            mean of their numbers.
        only: what all images have in common, if their labels are all equal.
        scores: the scores, that of the config or the usual one of the kind of task first.
    """

    images: int
    majority: str
    only: str | None
    scores: Sequence[Score]

    @property
    def verdict(self) -> str | None:
        """What to know about the scores: those that are no better than the majority answer.

        None if all are better.
        """
        if self.only is not None:
            return f"cannot be judged: {self.only} in the test set"
        worse = [score.name.partition(",")[0] for score in self.scores if score.better is False]
        better = [score.name.partition(",")[0] for score in self.scores if score.better]
        always = f"no better than always answering {shown(self.majority)}"
        if not worse:
            return None
        if not better:
            return f"{always} on these {self.images:,} images"
        return (
            f"{_joined(worse)} {_are(worse)} {always} on these {self.images:,} images, "
            f"but {_joined(better)} {_are(better)} better"
        )

    def as_dict(self) -> dict[str, Any]:
        """The scores as plain values for JSON."""
        first = self.scores[0]
        return {
            "metric": first.key,
            "score": first.value,
            "images": self.images,
            "majority_answer": self.majority,
            "verdict": self.verdict,
            "scores": {score.key: score.as_dict() for score in self.scores},
        }


def task_scores(task: TaskPredictions) -> TaskScores:
    """The scores of a task on the images that have its label.

    With balanced accuracy and macro F1 if its labels are lopsided. If the images have groups, all
    intervals come from a bootstrap over these.
    """
    task = task.labelled()
    if not len(task.labels):
        return _no_scores(task.task)
    found = _scores(task)
    if task.groups is None:
        return found
    scores = [replace(s, interval=grouped_interval(task, VALUES[s.key])) for s in found.scores]
    return replace(found, scores=scores)


def grouped_interval(task: TaskPredictions, value: Callable[[TaskPredictions], float]) -> Interval:
    """A number of a task with its interval from a bootstrap over the groups of its images."""
    assert task.groups is not None
    return bootstrap(lambda numbers: value(task.rows(numbers)), task.groups)


#: Scores without their intervals, by key.
VALUES: dict[str, Callable[[TaskPredictions], float]] = {
    "exact-match": lambda task: float(task.correct.mean()),
    "accuracy": lambda task: float(
        (task.predicted == task.labels).mean() if task.kind == "multilabel" else task.correct.mean()
    ),
    "auc": lambda task: auc_value(*_ranked(task)),
    "balanced-accuracy": lambda task: balanced_accuracy(task.correct, task.labels).value,
    "macro-f1": lambda task: f1_score(task.predicted, task.labels),
    "r2": lambda task: r_squared_value(task.probabilities[:, 0], task.labels[:, 0]),
    "pearson": lambda task: pearson(task.probabilities[:, 0], task.labels[:, 0]).value,
    "mae": lambda task: float(np.abs(np.subtract(*_values(task))).mean()),
    "kappa": lambda task: quadratic_kappa_value(*_values(task)),
    "concordance": lambda task: _concordance(task).value,
}


def _values(task: TaskPredictions) -> tuple[Floats, Floats]:
    """Predicted and true numbers ``(n,)``: those of a regression, or numbers of grades."""
    if task.has_classes:
        grades = (each.argmax(axis=1).astype(np.float64) for each in (task.predicted, task.labels))
        return next(grades), next(grades)
    return task.probabilities[:, 0], task.labels[:, 0]


def _area(task: TaskPredictions) -> Interval:
    return auc(*_ranked(task))


def _ranked(task: TaskPredictions) -> tuple[Floats, Bools]:
    """Probabilities and labels ``(n, C)`` whose areas under the ROC curve are averaged."""
    # The first of two classes would only repeat the area of the second.
    first = 1 if len(task.classes) == 2 and task.kind != "multilabel" else 0
    return task.probabilities[:, first:], task.labels[:, first:]


def _concordance(task: TaskPredictions) -> Interval:
    assert isinstance(task.task, Survival)
    return concordance(task.task.risk(torch.from_numpy(task.probabilities)).numpy(), task.labels)


def _scores(task: TaskPredictions) -> TaskScores:
    """The scores of labelled images with intervals for images that are independent."""
    if isinstance(task.task, Regression):
        return _regression_scores(task, task.task)
    if isinstance(task.task, Survival):
        return _survival_scores(task, task.task)
    labels, correct, predicted = task.labels, task.correct, task.predicted
    accuracy = wilson(int(correct.sum()), len(correct))
    answers, counts = np.unique(labels, axis=0, return_counts=True)
    constant = answers[[counts.argmax()]]  # (1, C)
    share = float(counts.max()) / len(labels)
    reason = f"{task.only_class} in the test set"
    if task.kind == "multilabel":
        frequency = labels.mean(axis=0)
        each, chance = label_accuracy(predicted == labels), np.maximum(frequency, 1 - frequency)
        scores = [
            Score("exact-match", "exact match", accuracy, share),
            Score("accuracy", "label accuracy", each, float(chance.mean())),
            Score("auc", "AUC, mean over labels", _area(task), 0.5, reason),
        ]
    else:
        many = "" if len(task.classes) == 2 else ", mean over classes"
        scores = [
            Score("accuracy", "accuracy", accuracy, share),
            Score("auc", f"AUC{many}", _area(task), 0.5, reason),
        ]
    if task.kind == "ordinal":
        grades, truth = _values(task)
        kappa, error = quadratic_kappa(grades, truth), mean_error(np.abs(grades - truth))
        constant_error = float(np.abs(truth - constant[0].argmax()).mean())
        scores += [
            Score("kappa", "quadratic weighted kappa", kappa, 0.0, reason),
            Score("mae", "mean absolute error in grades", error, constant_error, error=True),
        ]
    if is_lopsided(task):
        if task.kind != "multilabel":
            balanced = balanced_accuracy(correct, labels)
            present = int(labels.any(axis=0).sum())
            scores.append(Score("balanced-accuracy", "balanced accuracy", balanced, 1 / present))
        f1 = macro_f1(predicted, labels, by_class=task.kind != "multilabel")
        baseline = f1_score(np.broadcast_to(constant, labels.shape), labels)
        scores.append(Score("macro-f1", "macro F1", f1, baseline, reason))
    return TaskScores(
        images=len(labels),
        majority=task.names(constant[0]),
        only=task.only_class,
        scores=sorted(scores, key=lambda score: score.key != task.task.metric_name),
    )


def _regression_scores(task: TaskPredictions, spec: Regression) -> TaskScores:
    predicted, labels = task.probabilities[:, 0], task.labels[:, 0]
    average = float(labels.mean())
    errors, constant = np.abs(predicted - labels), float(np.abs(average - labels).mean())
    only = spec.nothing_to_learn(torch.from_numpy(labels))
    reason = f"{only} in the test set" if only else "all predictions are equal, or too few images"
    scores = [
        Score("r2", "R²", r_squared(predicted, labels), 0.0, reason),
        Score("pearson", "Pearson's r", pearson(predicted, labels), 0.0, reason),
        Score("mae", "mean absolute error", mean_error(errors), constant, error=True),
    ]
    first = sorted(scores, key=lambda score: score.key != spec.metric_name)
    return TaskScores(len(labels), f"{average:.4g}", only, first)


def _survival_scores(task: TaskPredictions, spec: Survival) -> TaskScores:
    only = spec.nothing_to_learn(torch.from_numpy(task.labels))
    index = _concordance(task)
    reason = f"{only} in the test set" if only else "no two images can be compared"
    score = Score("concordance", "concordance index", index, 0.5, reason)
    return TaskScores(len(task.labels), "the same risk", only, [score])


def _no_scores(task: Task) -> TaskScores:
    none = Score(task.metric_name, task.metric_name, Interval(nan, nan, nan), nan, "no labels")
    return TaskScores(images=0, majority="", only="no labels", scores=[none])


def is_lopsided(task: TaskPredictions) -> bool:
    """Whether the most frequent class has three times the images of the rarest, or more.

    Classes without images do not count. For a multilabel task, whether that holds between the
    images with a label and those without it, for any label.
    """
    counts = task.labels.sum(axis=0)
    pairs = [counts[counts > 0]]
    if task.kind == "multilabel":
        pairs = [np.array([n, len(task.labels) - n]) for n in counts if 0 < n < len(task.labels)]
    return any(pair.max() >= LOPSIDED * pair.min() and len(pair) > 1 for pair in pairs)


def _joined(names: Sequence[str]) -> str:
    """Names in a sentence.

    >>> _joined(["AUC"]), _joined(["accuracy", "AUC", "macro F1"])
    ('AUC', 'accuracy, AUC and macro F1')
    """
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
