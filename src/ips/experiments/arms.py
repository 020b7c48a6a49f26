"""The paper's tables and figures as lists of arms: a method, its settings, what was published."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Scale = Literal["laptop", "paper"]
Kind = Literal["table", "size", "grid", "runs"]


@dataclass(frozen=True)
class Arm:
    """One line of a table.

    Attributes:
        label: what the line is called.
        settings: ``key=value`` as on the command line, the method among them.
        show: further columns, such as M and N.
        published: what the paper has in this line, by column.
        trains: False where only time and memory are of interest.
    """

    label: str
    settings: tuple[str, ...]
    show: Mapping[str, str] = field(default_factory=dict)
    published: Mapping[str, str] = field(default_factory=dict)
    trains: bool = True

    @property
    def slug(self) -> str:
        """Of its folder."""
        words = " ".join([self.label, *(f"{k}{v}" for k, v in self.show.items())]).lower()
        words = words.replace(",", "").replace("+", " plus")
        return re.sub(r"[^a-z0-9.]+", "-", words).strip("-")

    @property
    def method(self) -> str:
        """Its method."""
        return next(
            (s.removeprefix("method=") for s in self.settings if s.startswith("method=")), "ips"
        )


@dataclass(frozen=True)
class Experiment:
    """One table or figure.

    Attributes:
        name: on the command line.
        description: one line of help.
        recipes: name of the recipe per scale.
        arms: per scale.
        kind: how it is shown.
        common: settings of every arm, per scale.
        seeds: how many by default; the paper has 5, and 1 where it varies a size.
    """

    name: str
    description: str
    recipes: Mapping[Scale, str]
    arms: Callable[[Scale], list[Arm]]
    kind: Kind = "table"
    common: Mapping[Scale, tuple[str, ...]] = field(default_factory=dict)
    seeds: int = 5

    def settings(self, arm: Arm, scale: Scale) -> list[str]:
        """All of an arm's settings."""
        return [*self.common.get(scale, ()), *arm.settings]
