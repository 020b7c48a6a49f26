"""Cross-validation: a run folder for every fold, and a summary of all of them.

fold-1/ ...       run folders; those of a second repetition are repeat-2-fold-1/ ...
  validation.csv    predictions for the images of the fold, which its model was not trained on
  predictions.csv   predictions for the test images
out_of_fold.csv   validation.csv of all folds: predictions for all images but the test images
predictions.csv   predictions of all models together for the test images
summary.json      scores of every fold, their mean and deviation, and the scores of both tables

Letters: n images, C classes.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

from ips.config import Config, TableConfig
from ips.errors import ConfigError, RunError
from ips.files import write_text
from ips.predictions import (
    TaskPredictions,
    TestPredictions,
    read_predictions,
    write_predictions,
)
from ips.task_scores import TaskScores, task_scores
from ips.training.data import Data, build_data
from ips.training.folder import RunFolder
from ips.training.model import resolve
from ips.training.processes import Processes
from ips.training.split_file import record_split

if TYPE_CHECKING:
    from ips.training.testing import Evaluation

SUMMARY = "summary.json"
VALIDATION = "validation.csv"
PREDICTIONS = "predictions.csv"
OUT_OF_FOLD = "out_of_fold.csv"


@dataclass(frozen=True)
class Fold:
    """A finished fold.

    Attributes:
        numbers: numbers of its validation images among all images that are not for testing.
        validation: predictions for its validation images.
        test: predictions for the test images.
    """

    numbers: list[int]
    validation: TestPredictions
    test: TestPredictions


@dataclass(frozen=True)
class FoldScores:
    """The scores of a task in a cross-validation.

    Attributes:
        metric: name of the metric.
        folds: score of the validation images of every fold; None where it is undefined.
        out_of_fold: scores of all images but the test images, each predicted by models that never
            saw it.
        test: scores of the test images, predicted by all models together.
    """

    metric: str
    folds: list[float | None]
    out_of_fold: TaskScores
    test: TaskScores

    @property
    def mean(self) -> float | None:
        """Mean score of the folds in which it is defined."""
        known = self._known
        return statistics.fmean(known) if known else None

    @property
    def deviation(self) -> float | None:
        """Standard deviation between the folds."""
        known = self._known
        return statistics.stdev(known) if len(known) > 1 else None

    @property
    def _known(self) -> list[float]:
        return [score for score in self.folds if score is not None]

    def as_dict(self) -> dict[str, Any]:
        return {
            "metric": self.metric,
            "folds": self.folds,
            "mean": _rounded(self.mean),
            "deviation": _rounded(self.deviation),
            "out_of_fold": self.out_of_fold.as_dict(),
            "test": self.test.as_dict(),
        }


def fold_configs(
    config: Config, run: Path, *, folds: int, repeats: int = 1
) -> list[tuple[Config, Path]]:
    """The config and the run folder of every fold."""
    if not isinstance(config.data, TableConfig):
        raise ConfigError(
            f"--folds: data.kind is {config.data.kind}, and only a table can be divided into folds"
        )
    if (count := Processes.of(config).count) > 1:
        raise ConfigError(
            f"--folds with {count} devices: set train.devices=1, or train the folds one by one "
            "with data.folds and data.fold"
        )
    result = []
    for repeat in range(1, repeats + 1):
        for fold in range(1, folds + 1):
            data = config.data.model_copy(update={"folds": folds, "fold": fold, "repeat": repeat})
            name = f"fold-{fold}" if repeat == 1 else f"repeat-{repeat}-fold-{fold}"
            result.append((config.model_copy(update={"data": data}), run / name))
    return result


def fold_runs(run: Path) -> list[Path]:
    """Run folders of a finished cross-validation; empty if the folder holds none.

    Raises an error if the cross-validation is unfinished.
    """
    found = [path.parent for path in run.glob("*fold-*/config.yaml")]
    if found and not (run / SUMMARY).is_file():
        raise RunError(
            f"{run}: the cross-validation is unfinished: continue it with `ips train --resume`"
        )
    return sorted(found, key=_number)


def _number(run: Path) -> tuple[int, ...]:
    return tuple(int(word) for word in run.name.split("-") if word.isdecimal())


def stored_or_new(
    config: Config,
    run: Path,
    train: Callable[[Config, Path, Data], Evaluation],
    *,
    resume: bool,
    console: Console | None = None,
) -> Fold:
    """The predictions of a fold, which is trained first unless it is finished.

    They are read from their files in any case, so that a resumed cross-validation ends with the
    same numbers.
    """
    from ips.training.run import check_started  # they need Lightning
    from ips.training.testing import predict_validation

    data = build_data(config)
    config = resolve(config, data)
    files = run / VALIDATION, run / PREDICTIONS
    stored = [read_predictions(file, config) for file in files] if resume else [None]
    if None in stored:
        evaluation = train(config, run, data)
        validation = predict_validation(evaluation.model, data, console=console)
        for file, predictions in zip(files, (validation, evaluation.predictions), strict=True):
            write_predictions(file, predictions)
        stored = [read_predictions(file, config) for file in files]
    else:
        check_started(config, RunFolder(run), data)
        record_split(RunFolder(run).split, data)
    validation, test = (predictions for predictions in stored if predictions is not None)
    splits = data.predicted_splits()
    numbers = [i for i, split in enumerate(splits) if split == "validation"]
    return Fold(numbers, validation, test)


def summarise(run: Path, folds: Sequence[Fold]) -> dict[str, FoldScores]:
    """Write the tables and the summary of a cross-validation."""
    held_out = [fold.validation for fold in folds]
    together = average([fold.test for fold in folds])
    out_of_fold = in_order([fold.numbers for fold in folds], held_out)
    scores = {
        task.name: FoldScores(
            task.task.metric_name,
            [task_scores(part.tasks[number]).scores[0].value for part in held_out],
            task_scores(task),
            task_scores(together.tasks[number]),
        )
        for number, task in enumerate(out_of_fold.tasks)
    }
    write_predictions(run / OUT_OF_FOLD, out_of_fold)
    write_predictions(run / PREDICTIONS, together)
    values = {task: score.as_dict() for task, score in scores.items()}
    write_text(run / SUMMARY, json.dumps(values, indent=2) + "\n")
    return scores


def average(predictions: Sequence[TestPredictions]) -> TestPredictions:
    """The mean probabilities of several models for the same images."""
    first = predictions[0]
    tasks = [
        TaskPredictions(
            task.name,
            task.task,
            task.labels,
            np.mean([p.tasks[number].probabilities for p in predictions], axis=0),
            task.known,
        )
        for number, task in enumerate(first.tasks)
    ]
    return TestPredictions(first.images, tasks)


def in_order(
    numbers: Sequence[Sequence[int]], predictions: Sequence[TestPredictions]
) -> TestPredictions:
    """Put the images of all folds in the order of their numbers; average repeated predictions."""
    place = np.concatenate([np.asarray(part) for part in numbers])  # (n of all folds,)
    count = np.bincount(place)[:, None]  # (n, 1)
    names = [name for part in predictions for name in part.images]
    images = dict(zip(place.tolist(), names, strict=True))
    tasks = []
    for number, task in enumerate(predictions[0].tasks):
        labels = np.zeros((len(count), *task.labels.shape[1:]), dtype=task.labels.dtype)
        probabilities = np.zeros((len(count), len(task.classes)))
        labels[place] = np.concatenate([part.tasks[number].labels for part in predictions])
        found = np.concatenate([part.tasks[number].probabilities for part in predictions])
        np.add.at(probabilities, place, found)
        known = np.zeros(len(count), dtype=bool)
        known[place] = np.concatenate([part.tasks[number].has_label for part in predictions])
        tasks.append(TaskPredictions(task.name, task.task, labels, probabilities / count, known))
    return TestPredictions([images[i] for i in range(len(count))], tasks)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
