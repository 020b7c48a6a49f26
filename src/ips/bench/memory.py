"""Benchmark of a training step's memory against the image size: Fig. 3, left, for host memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tifffile
import torch

from ips.bench.figures import memory_lines
from ips.bench.memory_step import measure_step
from ips.bench.peak import Peak, run_in_new_process
from ips.bench.report import Report, report_name
from ips.bench.timing import Log, ignore
from ips.data.synthetic.megapixel_mnist import SMALLEST_SIDE, MegapixelMNIST
from ips.errors import ConfigError
from ips.files import atomic_path
from ips.locks import lock_folder

ARMS = ("eager", "sequential", "lazy", "cnn")
SIDES = (1000, 2000, 4000, 6000, 8000, 10_000)
QUICK_SIDES = (200, 400)
_TILE = 256


def bench_memory(
    folder: Path,
    *,
    sides: Sequence[int] = SIDES,
    arms: Sequence[str] = ARMS,
    batch: int = 4,
    width: int = 64,
    limit_gb: float = 6.0,
    quick: bool = False,
    log: Log = ignore,
) -> Report:
    """Measure the peak memory of each arm at each side, as the median of three new CPU processes.

    Args:
        folder: folder for the images; a later run reuses them.
        sides: sides of the images in pixels.
        arms: names from ``ARMS``: how IPS loads its patches, and the CNN on the whole image.
        batch: number of images in a step.
        width: channels of the encoder's first stage, 64 in the paper.
        limit_gb: memory limit of the CNN; larger sides are not run.
        quick: use tiny images and models to try the benchmark; the numbers mean nothing.
        log: callback that receives a line of text after every measurement.
    """
    unknown = [arm for arm in arms if arm not in ARMS]
    if unknown:
        raise ConfigError(f"--arm {unknown[0]}: expected one of {', '.join(ARMS)}")
    sides = sorted(QUICK_SIDES if quick else sides)
    keep, width = (4, 16) if quick else (100, width)

    def measure(arm: str, side: int) -> Peak:
        paths = _images(folder, side, batch)
        # Peaks vary by a few per cent between processes: take the median.
        peaks = [run_in_new_process(measure_step, arm, paths, keep, width) for _ in range(3)]
        return sorted(peaks, key=lambda peak: peak.peak)[1]

    measured: list[dict[str, Any]] = []
    stopped: dict[str, str] = {}
    for arm in arms:
        # A small image shows how much memory the CNN needs per pixel.
        last_side = max(SMALLEST_SIDE, sides[0] // 4)
        last = measure(arm, last_side) if arm == "cnn" else None
        for side in sides:
            need = last.before + last.above * (side / last_side) ** 2 if last else 0
            if need > limit_gb * 1e9:
                stopped[arm] = (
                    f"{arm}: not run from {side:,} px on, where it would exceed {limit_gb:g} GB "
                    f"(about {need / 1e9:.1f} GB)"
                )
                log(stopped[arm])
                break
            peak = measure(arm, side)
            measured.append({"arm": arm, "side": side, **asdict(peak), "above": peak.above})
            log(f"{arm}, {side:,} px: {peak.peak / 1e6:,.0f} MB")
            if arm == "cnn":
                last_side, last = side, peak
    lines = {arm: {m["side"]: m["peak"] / 1e9 for m in measured if m["arm"] == arm} for arm in arms}
    growth: dict[str, float | None] = dict.fromkeys(arms)
    notes = []
    for arm, line in lines.items():
        if len(line) > 1:
            growth[arm] = ratio = max(line.values()) / min(line.values())
            notes.append(f"{arm}: the largest peak is {100 * (ratio - 1):.1f} % above the smallest")
    settings = {"batch": batch, "M": keep, "I": keep, "width": width, "sides": sides}
    return Report(
        name=report_name("memory", arms, of=ARMS),
        data={
            "settings": settings | {"limit_gb": limit_gb, "patch": 50, "tile": _TILE},
            "measured": measured,
            "growth": growth,
            "not run": stopped,
        },
        device=torch.device("cpu"),
        quick=quick,
        header=("side, px", *arms),
        rows=[(f"{side:,}", *(_cell(lines[arm].get(side)) for arm in arms)) for side in sides],
        notes=[*notes, *stopped.values()],
        figure=memory_lines(
            lines, title=f"A training step of {batch} images, {keep} patches each", stopped=stopped
        ),
    )


def _images(folder: Path, side: int, count: int) -> list[Path]:
    """Megapixel MNIST as tiled TIFF files; missing files are written."""
    paths = [folder / f"megapixel-mnist-{side}-{number}.tif" for number in range(count)]
    if not all(path.exists() for path in paths):
        data = MegapixelMNIST(side, count=count)
        with lock_folder(folder, option="folder"):
            for number, path in enumerate(paths):
                with atomic_path(path) as part:
                    pixels = data[number][0].dense()
                    tifffile.imwrite(part, pixels, tile=(_TILE, _TILE), compression="deflate")
    return paths


def _cell(peak: float | None) -> str:
    return "not run" if peak is None else f"{peak:.3f} GB"
