"""Memory of a training step against the size of the image: Fig. 3, left, for host memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tifffile
import torch

from ips.bench.figures import memory_lines
from ips.bench.machine import facts
from ips.bench.memory_step import Step, peak_of_step
from ips.bench.peak import Peak, fresh
from ips.bench.report import Report, name_of
from ips.bench.rounds import Log
from ips.data import MegapixelMNIST
from ips.data.synthetic.megapixel_mnist import SMALLEST_SIDE

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
    log: Log,
) -> Report:
    """Peak memory of each arm at each side, the median of three fresh processes on the CPU.

    Args:
        folder: where the images are made, and found again by a later run.
        sides: of the images in pixels.
        arms: the three ways to load, and the CNN over the whole image.
        batch: images of a step.
        width: channels of the encoder's first stage, 64 in the paper.
        limit_gb: the CNN is not run where it would need more than this.
        quick: tiny images and models, to see that all works.
        log: callback that receives a line of text after every measurement.
    """
    sides = sorted(QUICK_SIDES if quick else sides)
    keep, width = (4, 16) if quick else (100, width)
    measured: list[dict[str, Any]] = []
    stopped: dict[str, str] = {}
    for arm in arms:
        last: tuple[int, Peak] | None = None
        if arm == "cnn":  # how much it needs for a pixel is seen on a small image
            probe = max(SMALLEST_SIDE, sides[0] // 4)
            last = probe, _peak(Step(arm, _images(folder, probe, batch), keep, width))
        for side in sides:
            if arm == "cnn" and last is not None:
                need = last[1].before + last[1].above * (side / last[0]) ** 2
                if need > limit_gb * 1e9:
                    stopped[arm] = (
                        f"cnn: not run from {side:,} px on, where it would exceed {limit_gb:g} GB "
                        f"(about {need / 1e9:.1f} GB)"
                    )
                    log(stopped[arm])
                    break
            peak = _peak(Step(arm, _images(folder, side, batch), keep, width))
            measured.append({"arm": arm, "side": side, **asdict(peak), "above": peak.above})
            log(f"{arm}, {side:,} px: {peak.peak / 1e6:,.0f} MB")
            last = side, peak
    growth = {arm: _growth([m for m in measured if m["arm"] == arm]) for arm in arms}
    lines = {arm: {m["side"]: m["peak"] / 1e9 for m in measured if m["arm"] == arm} for arm in arms}
    settings = {"batch": batch, "M": keep, "I": keep, "width": width, "sides": sides}
    return Report(
        name=name_of("memory", arms, ARMS),
        data={
            "machine": facts(torch.device("cpu")),
            "quick": quick,
            "settings": settings | {"limit_gb": limit_gb, "patch": 50, "tile": _TILE},
            "measured": measured,
            "growth": growth,
            "not run": stopped,
        },
        header=("side, px", *arms),
        rows=[(f"{side:,}", *(_cell(lines[arm].get(side)) for arm in arms)) for side in sides],
        notes=[
            *(
                f"{arm}: the largest peak is {100 * (grown - 1):.1f} % above the smallest"
                for arm, grown in growth.items()
                if grown is not None
            ),
            *stopped.values(),
        ],
        figure=memory_lines(
            lines, title=f"A training step of {batch} images, {keep} patches each", stopped=stopped
        ),
    )


def _peak(step: Step) -> Peak:
    """The middle one: threads get their memory in another order each time, a few per cent apart."""
    return sorted((fresh(peak_of_step, step) for _ in range(3)), key=lambda peak: peak.peak)[1]


def _images(folder: Path, side: int, count: int) -> list[Path]:
    """Megapixel MNIST as tiled TIFFs on the disk, made where they are missing."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"megapixel-mnist-{side}-{number}.tif" for number in range(count)]
    if not all(path.exists() for path in paths):
        data = MegapixelMNIST(side, count=count)
        for number, path in enumerate(paths):
            part = path.with_suffix(".part")
            pixels = data[number][0].dense()
            tifffile.imwrite(part, pixels, tile=(_TILE, _TILE), compression="deflate")
            part.replace(path)
    return paths


def _growth(measured: list[dict[str, Any]]) -> float | None:
    peaks = [m["peak"] for m in measured]
    return max(peaks) / min(peaks) if len(peaks) > 1 else None


def _cell(peak: float | None) -> str:
    return "not run" if peak is None else f"{peak:.3f} GB"
