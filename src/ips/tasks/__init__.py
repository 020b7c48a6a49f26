"""What a task is: its loss, activation, decision and metric. Networks emit logits.

::

    task.py            what all kinds have in common, and labels that are missing
    classification.py  one class, any number of labels, or yes and no
    ordinal.py         one of several grades, which are in an order
    regression.py      a number
    survival.py        a risk, from times until an event
"""

from __future__ import annotations

from collections.abc import Mapping

from ips.config import TaskConfig
from ips.tasks.classification import LOPSIDED, Classification
from ips.tasks.ordinal import Ordinal
from ips.tasks.regression import Regression
from ips.tasks.survival import Cox, Hazards, Survival
from ips.tasks.task import Answer, ClassKind, Kind, Score, Task

__all__ = [
    "LOPSIDED",
    "Answer",
    "ClassKind",
    "Classification",
    "Cox",
    "Hazards",
    "Kind",
    "Ordinal",
    "Regression",
    "Score",
    "Survival",
    "Task",
    "build_tasks",
]

# Until the data is known, a model has as many intervals as the usual number of cuts.
_CUTS = (1.0, 2.0, 3.0, 4.0)


def build_tasks(configs: Mapping[str, TaskConfig]) -> dict[str, Task]:
    """The tasks that a config describes, by name."""
    return {name: _build(config) for name, config in configs.items()}


def _build(config: TaskConfig) -> Task:
    if config.kind == "regression":
        mean = 0.0 if config.mean is None else config.mean
        squared = config.loss == "squared"
        return Regression(mean, config.deviation or 1.0, squared=squared, score=config.metric)
    if config.kind == "survival":
        if config.loss == "hazards":
            return Hazards(threshold=config.threshold, cuts=tuple(config.cuts or _CUTS))
        return Cox(threshold=config.threshold)
    names = None if config.names is None else tuple(config.ordered(config.names))
    kind = Ordinal if config.kind == "ordinal" else Classification
    return kind(config.kind, config.classes, names, config.metric)
