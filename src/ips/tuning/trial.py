"""One run of a search."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Trial:
    """A run with its settings.

    Attributes:
        number: its number, counted from 1.
        settings: the settings that were chosen, as on the command line.
        score: mean validation score of the tasks; None if it failed.
        problem: why it failed; empty if it did not.
    """

    number: int
    settings: dict[str, str]
    score: float | None
    problem: str = ""
