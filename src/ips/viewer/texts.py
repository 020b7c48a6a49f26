"""Predictions and true labels in the words of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ips.predictor import Predictor
from ips.tasks import Answer, Classification, Survival
from ips.viewer.answers import Floats


def answer_names(answer: Answer | None) -> list[str] | None:
    """An answer as a list of class names, or of one number."""
    if answer is None or isinstance(answer, list):
        return answer
    return [answer if isinstance(answer, str) else f"{answer:.4g}"]


def describe_predictions(
    predictor: Predictor, probabilities: Sequence[Floats], truth: Mapping[str, Answer]
) -> list[dict[str, Any]]:
    """What is predicted in each task.

    A prediction has ``names``, see `answer_names`, whether it is a ``number``, the ``probability``
    of a single class, a ``note`` on the risk of a survival task, and ``correct``, which is None if
    the label is unknown, and for numbers, which are neither right nor wrong.
    """
    rows: list[dict[str, Any]] = []
    for name, values in zip(predictor.net.tasks, probabilities, strict=True):
        task, p = predictor.tasks[name], torch.from_numpy(values)
        predicted = predictor.answer(name, p)
        probability, correct, note = None, None, None
        if isinstance(task, Classification):
            if isinstance(predicted, str):
                probability = predictor.class_probabilities(name, p)[predicted]
            correct = predicted == truth[name] if name in truth else None
        elif isinstance(task, Survival) and isinstance(predicted, float):
            note = task.risk_group(predicted)
        row = {"names": answer_names(predicted), "number": isinstance(predicted, float)}
        rows.append({**row, "probability": probability, "correct": correct, "note": note})
    return rows
