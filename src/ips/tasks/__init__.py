"""What a task is: its loss, activation, decision and metric. Networks emit logits.

task.py            what all kinds have in common, and labels that are missing
classification.py  one class, any number of labels, or yes and no
"""

from __future__ import annotations

from collections.abc import Mapping

from ips.config import TaskConfig
from ips.tasks.classification import LOPSIDED, Classification
from ips.tasks.task import Answer, Kind, Score, Task

__all__ = ["LOPSIDED", "Answer", "Classification", "Kind", "Score", "Task", "build_tasks"]


def build_tasks(configs: Mapping[str, TaskConfig]) -> dict[str, Task]:
    """The tasks that a config describes, by name."""
    return {name: _build(config) for name, config in configs.items()}


def _build(config: TaskConfig) -> Task:
    names = None if config.names is None else tuple(config.ordered(config.names))
    return Classification(config.kind, config.classes, names, config.metric)
