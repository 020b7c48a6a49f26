"""Tables and figures of the paper as experiments, each with a list of arms.

An arm is a method with its settings. It is trained once per seed and becomes one row of a table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from rich.console import Console

from ips.errors import ConfigError

Scale = Literal["laptop", "paper"]
Kind = Literal["table", "table-per-run", "lines", "grid"]

TABLE = "features.csv"
"""File name of a table of feature files that an experiment writes itself."""

OBJECTS = "drawn/truth"
"""Folder with the annotations of the slides that an experiment draws itself."""

MICRO_BATCH = "micro-batch"
"""Column with the number of patches that are embedded at once: ``fixed`` or ``B·I``."""


@dataclass(frozen=True)
class Arm:
    """One configuration of an experiment.

    Attributes:
        label: name of the method in tables and figures.
        settings: ``key=value``, as after ``--set`` on the command line, including the method.
        sizes: columns of the table that tell arms of the same label apart, such as M and N.
        published: the paper's numbers in this row, by column.
        trains: False if only time and memory are measured.
    """

    label: str
    settings: tuple[str, ...]
    sizes: Mapping[str, str] = field(default_factory=dict)
    published: Mapping[str, str] = field(default_factory=dict)
    trains: bool = True

    @property
    def slug(self) -> str:
        """Folder name of the arm."""
        words = " ".join([self.label, *(f"{k}{v}" for k, v in self.sizes.items())]).lower()
        words = words.replace(",", "").replace("+", " plus")
        return re.sub(r"[^a-z0-9.]+", "-", words).strip("-")

    @property
    def method(self) -> str:
        return dict(setting.split("=", 1) for setting in self.settings).get("method", "ips")


class Prepare(Protocol):
    """Writes the data of an experiment into a folder, with `TABLE` of its files and `OBJECTS`."""

    def __call__(self, folder: Path, *, console: Console | None = None) -> None: ...


@dataclass(frozen=True)
class Experiment:
    """One table or figure.

    Attributes:
        recipes: name of the recipe per scale.
        build_arms: function that returns the arms of a scale.
        kind: presentation of the results: a ``table`` with a bar chart, ``table-per-run`` with the
            score of every run as well, ``lines`` over a size, or a ``grid`` of M and I.
        lines: the size on the horizontal axis, and tasks or costs, a panel for each.
        common: settings of every arm, per scale.
        seeds: default number of seeds per arm; 5 in the paper, or 1 where it varies a size.
        patches: patches of the largest image per scale; if given, memory is drawn against N.
        prepare: function that prepares the data, for the scales of which there is no other data.
    """

    name: str
    description: str
    recipes: Mapping[Scale, str]
    build_arms: Callable[[Scale], list[Arm]]
    kind: Kind = "table"
    lines: tuple[str, tuple[str, ...]] = ("", ())
    common: Mapping[Scale, tuple[str, ...]] = field(default_factory=dict)
    seeds: int = 5
    patches: Mapping[Scale, int] = field(default_factory=dict)
    prepare: Mapping[Scale, Prepare] = field(default_factory=dict)

    def arms(self, scale: Scale) -> list[Arm]:
        if scale not in self.recipes:
            scales = ", ".join(self.recipes)
            raise ConfigError(f"{self.name}: there is no scale {scale}, only {scales}")
        return self.build_arms(scale)
