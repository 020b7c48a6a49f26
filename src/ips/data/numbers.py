"""Encode labels that are numbers: those of a regression, and times until an event."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ips.config import TaskConfig
from ips.data.table import Row
from ips.errors import shown

# A time that is censored, and one at which the event happened; cBioPortal writes 1:DECEASED.
_EVENTS = (
    ("0", "false", "no", "alive", "living", "censored", "0:living", "0:censored"),
    ("1", "true", "yes", "dead", "deceased", "died", "event", "1:deceased", "1:dead"),
)


def has_label(row: Row, task: str, spec: TaskConfig) -> bool:
    """Whether no cell of a task is empty."""
    return all(row.labels[column] for column in spec.columns(task))


def encode_number(row: Row, task: str, spec: TaskConfig) -> Tensor:
    """The label of a regression, or time and event ``(2,)``; raises ValueError for other text."""
    time, *event = spec.columns(task)
    value = number(row.labels[time])
    if value is None:
        raise ValueError(
            f"{shown(row.labels[time])} in column {time!r} is not a number: write it like 12.5"
        )
    if not event:
        return torch.tensor(value, dtype=torch.float32)
    happened = event_number(row.labels[event[0]])
    if value < 0:
        raise ValueError(f"the time {value:g} in column {time!r} is negative: correct it")
    if happened is None:
        raise ValueError(
            f"{shown(row.labels[event[0]])} in column {event[0]!r} does not say whether the event "
            "was observed: write 1 or 0"
        )
    return torch.tensor([value, happened], dtype=torch.float32)


def number(text: str) -> float | None:
    """The number that a cell means; None if it is none.

    >>> number("12.5"), number("1e3"), number("high"), number("nan")
    (12.5, 1000.0, None, None)
    """
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in text else None


def event_number(text: str) -> int | None:
    """1 for an event that was observed, 0 for a censored time, None for other text.

    >>> event_number("Dead"), event_number("0:LIVING"), event_number("1.0"), event_number("?")
    (1, 0, 1, None)
    """
    word = text.lower().removesuffix(".0")
    return next((i for i, words in enumerate(_EVENTS) if word in words), None)
