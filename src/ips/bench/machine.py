"""What a benchmark ran on: without it a time means nothing."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import torch

from ips._version import __version__


def facts(device: torch.device) -> dict[str, Any]:
    """Processor, memory and versions."""
    found: dict[str, Any] = {
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
        found["memory_gb"] = round(memory / 1e9, 1)
    if device.type == "cuda":
        found["gpu"] = torch.cuda.get_device_name(device)
    return found


def _processor() -> str:
    table = Path("/proc/cpuinfo")
    if table.exists():
        for line in table.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
