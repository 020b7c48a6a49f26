"""Result of a benchmark: JSON for programs, a chart and a table for people."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from ips._version import __version__
from ips.bench.figures import save_figure
from ips.files import write_text
from ips.locks import lock_folder


@dataclass(frozen=True)
class Report:
    """Result of one benchmark.

    Attributes:
        name: stem of the file names.
        data: measurements and settings for the JSON file.
        quick: whether the sizes are tiny, so that the numbers mean nothing.
        header, rows, notes: column names and cells of the table, sentences below it.
    """

    name: str
    data: dict[str, Any]
    device: torch.device
    quick: bool
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]
    notes: list[str]
    figure: Figure

    def save(self, folder: Path) -> list[Path]:
        """Write ``<name>.json`` and ``<name>.png``."""
        text, picture = folder / f"{self.name}.json", folder / f"{self.name}.png"
        facts = {"machine": machine_facts(self.device), "quick": self.quick}
        data = {"benchmark": self.name, **facts, **self.data, "notes": self.notes}
        with lock_folder(folder, option="--out"):
            write_text(text, json.dumps(data, indent=2, default=dataclasses.asdict) + "\n")
            save_figure(self.figure, picture)
        return [text, picture]


def report_name(benchmark: str, chosen: Sequence[str], *, of: Sequence[str]) -> str:
    """Name of the report's files; a partial run does not overwrite the files of a full run."""
    return benchmark if set(chosen) == set(of) else "-".join([benchmark, *chosen])


def machine_facts(device: torch.device) -> dict[str, Any]:
    """Processor, memory and versions."""
    facts: dict[str, Any] = {
        "ips": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.system(),
        "processor": _processor(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": device.type,
    }
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        facts["memory_gb"] = round(memory / 1e9, 1)
    if device.type == "cuda":
        facts["gpu"] = torch.cuda.get_device_name(device)
    return facts


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())
