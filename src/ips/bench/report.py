"""The outcome of a benchmark: JSON for machines, a picture and a table for people."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


@dataclass(frozen=True)
class Report:
    """Of one benchmark.

    Attributes:
        name: of its files.
        data: everything that was measured, the machine and the settings, for JSON.
        header: of the table.
        rows: of the table.
        notes: sentences below the table.
        figure: the picture.
    """

    name: str
    data: dict[str, Any]
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]
    notes: list[str]
    figure: Figure

    def save(self, folder: Path) -> list[Path]:
        """Write ``<name>.json`` and ``<name>.png``, each whole or not at all."""
        folder.mkdir(parents=True, exist_ok=True)
        text, picture = folder / f"{self.name}.json", folder / f"{self.name}.png"
        data = {"benchmark": self.name, **self.data, "notes": self.notes}
        part = folder / f".{self.name}.part"
        part.write_text(json.dumps(data, indent=2, default=_plain) + "\n", encoding="utf-8")
        part.replace(text)
        FigureCanvasAgg(self.figure)  # draws without a screen
        self.figure.savefig(part, format="png")
        part.replace(picture)
        return [text, picture]


def name_of(benchmark: str, chosen: Sequence[str], of: Sequence[str]) -> str:
    """Of the files: part of a benchmark has its own, and leaves those of the whole as they are."""
    return benchmark if set(chosen) == set(of) else "-".join([benchmark, *chosen])


def _plain(value: object) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(f"{type(value).__name__} has no place in a report")
