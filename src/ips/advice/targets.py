"""Columns of a table that hold numbers to predict, or times until an event."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import fmean

from ips.data.numbers import event_number, number

Cells = Mapping[str, str]

_TIMES = {"time", "day", "days", "weeks", "month", "months", "year", "years", "duration"}
_TIMES |= {"survival", "followup", "follow", "up", "to"}
_EVENTS = {"event", "status", "dead", "died", "death", "deceased", "vital", "observed"}
_BETWEEN_WORDS = re.compile(r"[^a-z0-9]+")
_FEWEST = 5  # different times or measurements; fewer are classes


def is_measurement(rows: Sequence[Cells], column: str) -> bool:
    """Whether a column holds numbers to predict, not classes, and not the numbers of the rows."""
    cells = [row[column] for row in rows if row[column]]
    values = [number(cell) for cell in cells]
    known = [value for value in values if value is not None]
    if len(known) < len(cells) or len(set(known)) < _FEWEST:
        return False
    ascending = sorted(known)
    counted = [ascending[0] + i for i in range(len(known))]
    return ascending != counted  # 1, 2, 3, ...


def survival_pairs(columns: Sequence[str], rows: Sequence[Cells]) -> dict[str, str]:
    """Columns of times, each with the column that says whether the event was observed.

    Names that differ in words such as time and event belong together, ``OS_MONTHS`` and
    ``OS_STATUS``; so do the only two, ``days`` and ``died``.
    """
    events = {c: _stem(c, _EVENTS) for c in columns if _is_event(rows, c)}
    times = {
        c: _stem(c, _TIMES)
        for c in columns
        if c not in events and set(_words(c)) & _TIMES and _is_time(rows, c)
    }
    pairs = {}
    for time, stem in times.items():
        alike = [event for event, other in events.items() if other == stem]
        named = [event for event in events if set(_words(event)) & _EVENTS]
        if len(alike) == 1:
            pairs[time] = alike[0]
        elif len(times) == len(named) == 1:
            pairs[time] = named[0]
    return pairs


def label_groups(columns: Sequence[str], rows: Sequence[Cells]) -> list[tuple[str, ...]]:
    """The columns of each task: two of a survival task, one of the others."""
    pairs = survival_pairs(columns, rows)
    second = set(pairs.values())
    return [(c, pairs[c]) if c in pairs else (c,) for c in columns if c not in second]


def summary(cells: Sequence[str]) -> str:
    """The range of a column of numbers, in words."""
    values = [float(cell) for cell in cells]
    return f"{min(values):g} to {max(values):g}, mean {fmean(values):.4g}"


def _words(column: str) -> list[str]:
    return [word for word in _BETWEEN_WORDS.split(column.lower()) if word]


def _stem(column: str, words: set[str]) -> tuple[str, ...]:
    """The words of a name without those that say what it is."""
    return tuple(word for word in _words(column) if word not in words)


def _is_event(rows: Sequence[Cells], column: str) -> bool:
    found = {event_number(row[column]) for row in rows if row[column]}
    return found == {0, 1}


def _is_time(rows: Sequence[Cells], column: str) -> bool:
    values = [number(row[column]) for row in rows if row[column]]
    return len(set(values)) >= _FEWEST and all(v is not None and v >= 0 for v in values)
