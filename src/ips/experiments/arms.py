"""Tables and figures of the paper as lists of arms: a method with its settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from ips.errors import ConfigError

Scale = Literal["laptop", "paper"]
Kind = Literal["table", "size", "grid", "runs"]


@dataclass(frozen=True)
class Arm:
    """One row of a table.

    Attributes:
        settings: ``key=value``, as after ``--set`` on the command line, including the method.
        show: further columns, such as M and N.
        published: the paper's numbers in this row, by column.
        trains: False if only time and memory are measured.
    """

    label: str
    settings: tuple[str, ...]
    show: Mapping[str, str] = field(default_factory=dict)
    published: Mapping[str, str] = field(default_factory=dict)
    trains: bool = True

    @property
    def slug(self) -> str:
        """Folder name of the arm."""
        words = " ".join([self.label, *(f"{k}{v}" for k, v in self.show.items())]).lower()
        words = words.replace(",", "").replace("+", " plus")
        return re.sub(r"[^a-z0-9.]+", "-", words).strip("-")

    @property
    def method(self) -> str:
        return dict(setting.split("=", 1) for setting in self.settings).get("method", "ips")


@dataclass(frozen=True)
class Experiment:
    """One table or figure.

    Attributes:
        recipes: name of the recipe per scale.
        build_arms: function that returns the arms of a scale.
        kind: type of the figure: scores per arm (``table``, ``runs``), ``size`` or ``grid``.
        common: settings of every arm, per scale.
        seeds: default number of seeds per arm; 5 in the paper, or 1 where it varies a size.
    """

    name: str
    description: str
    recipes: Mapping[Scale, str]
    build_arms: Callable[[Scale], list[Arm]]
    kind: Kind = "table"
    common: Mapping[Scale, tuple[str, ...]] = field(default_factory=dict)
    seeds: int = 5

    def arms(self, scale: Scale) -> list[Arm]:
        if scale not in self.recipes:
            scales = ", ".join(self.recipes)
            raise ConfigError(f"{self.name}: there is no scale {scale}, only {scales}")
        return self.build_arms(scale)
