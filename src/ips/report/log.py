"""The log of a training: a CSV with a line per epoch."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ips.errors import RunError
from ips.report.statistics import Floats

_SCORE = "train_"  # prefix of the columns with training scores


def read_log(path: Path, *, required: Sequence[str] = ("epoch", "loss")) -> dict[str, Floats]:
    """The columns of ``metrics.csv``, nan for an empty field; empty if there is no epoch yet."""
    if not path.is_file():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        return {}
    if missing := set(required) - set(rows[0]):
        raise RunError(f"{path}: has no column {', '.join(sorted(missing))}: it is not a run's log")
    try:
        return {
            name: np.array([float("nan" if row[name] == "" else row[name]) for row in rows])
            for name in rows[0]
        }
    except (TypeError, ValueError) as error:
        raise RunError(f"{path}: contains a value that is not a number ({error})") from error


def training_scores(log: dict[str, Floats]) -> dict[str, Floats]:
    """The score of each task on the training images, by epoch."""
    return {k.removeprefix(_SCORE): v for k, v in log.items() if k.startswith(_SCORE)}
