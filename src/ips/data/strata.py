"""What a random split keeps in the same proportion in all parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ips.config import TaskConfig
from ips.data.table import Row
from ips.tasks import build_tasks

_PARTS = 4  # of the range of a regression's labels, with the same number of images each


def strata(
    rows: Sequence[Row], labels: Sequence[Mapping[str, Tensor]], tasks: Mapping[str, TaskConfig]
) -> list[tuple[tuple[str, str], ...]]:
    """Task and class of each row: the quarter of a number, and whether an event was observed."""
    found: list[dict[str, str]] = [{} for _ in rows]
    for name, spec in tasks.items():
        if spec.has_classes:
            texts = [row.labels[name] for row in rows]
        else:
            texts = _parts(labels, name, tasks)
        for row, text in zip(found, texts, strict=True):
            row[name] = text
    return [tuple(sorted(row.items())) for row in found]


def _parts(
    labels: Sequence[Mapping[str, Tensor]], task: str, tasks: Mapping[str, TaskConfig]
) -> list[str]:
    """The quarter of each number, or whether an event was observed; "" for a missing label."""
    values = torch.stack([row[task] for row in labels]).double()
    known = build_tasks(tasks)[task].known(values)
    if values.dim() > 1:
        numbers = values[:, 1].nan_to_num().long()
    else:
        shares = torch.arange(1, _PARTS, dtype=torch.float64) / _PARTS
        edges = values[known].quantile(shares) if known.any() else shares
        numbers = torch.bucketize(values.nan_to_num(), edges)
    return [str(n) if there else "" for n, there in zip(numbers.tolist(), known, strict=True)]


def classes_of(
    labels: Sequence[Mapping[str, Tensor]], numbers: Sequence[int], tasks: Mapping[str, TaskConfig]
) -> set[object]:
    """Task and class of all labels of these rows; an event is the class of a survival task."""
    found: set[object] = set()
    for task, label in (pair for i in numbers for pair in labels[i].items()):
        if tasks[task].kind == "regression":
            continue
        if tasks[task].kind == "survival":
            present = label[1:]
        else:
            present = label.nonzero().flatten() if label.dim() else label
        # A missing label is negative or nan.
        found.update((task, number) for number in present.view(-1).tolist() if number >= 0)
    return found
