"""Made-up test predictions, for tests of the report."""

from __future__ import annotations

from typing import Any

import numpy as np

from ips.config import Config
from ips.config_io import parse_config
from ips.predictions import TaskPredictions, TestPredictions
from ips.tasks import build_tasks

EVIL = "<script>alert('x')</script>\"><img src=x onerror=y>"

KINDS: dict[str, dict[str, Any]] = {
    "multiclass": {"kind": "multiclass", "classes": 4},
    "two classes": {"kind": "multiclass", "classes": 2, "names": ["cat", "dog"]},
    "multilabel": {"kind": "multilabel", "classes": 3},
    "binary": {"kind": "binary"},
    "ordinal": {"kind": "ordinal", "classes": 3},
}


def config(**tasks: dict[str, Any]) -> Config:
    values = {"tasks": tasks, "encoder": {"name": "resnet18", "stages": 4}, "train": {"lr": 0.001}}
    return parse_config(values, source="test")


def made(settings: Config, *, count: int = 24, skill: float = 2.0) -> TestPredictions:
    """Predictions of a model that is more often right than wrong."""
    rng = np.random.default_rng(0)
    tasks = []
    for name, task in build_tasks(settings.tasks).items():
        classes = task.class_names
        labels = rng.random((count, len(classes))) < 0.3
        if task.kind != "multilabel":
            labels = np.arange(len(classes)) == rng.integers(len(classes), size=(count, 1))
        logits = skill * labels + rng.normal(size=labels.shape)
        p = 1 / (1 + np.exp(1 - logits))
        if task.kind != "multilabel":
            p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        tasks.append(TaskPredictions(name, task, labels, p))
    return TestPredictions([f"image {i}" for i in range(count)], tasks)
