"""The select step over one slide's stored features: time, and memory in processes of their own.

Letters: N rows of the bag, D_in features of a row, M kept, I per step.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ips import selection
from ips.bench.agreement import compare
from ips.bench.baseline import PaperIPS
from ips.bench.cases import projector_net, settled
from ips.bench.peak import Peak, fresh, peak_of
from ips.bench.rounds import Log, in_turns
from ips.models import IPSNet
from ips.patches import FeatureWriter, MemoryPatches, open_features


@dataclass(frozen=True)
class Bag:
    """A feature file and the model for it."""

    rows: int = 70_000
    inputs: int = 2048
    dim: int = 512
    keep: int = 5000
    chunk: int = 5000


QUICK = Bag(rows=500, inputs=32, dim=16, keep=40, chunk=40)


def stored_features(*, rounds: int, device: torch.device, quick: bool, log: Log) -> dict[str, Any]:
    """The bag as floats in memory, against rows read from the file as they are needed."""
    bag = QUICK if quick else Bag()
    with tempfile.TemporaryDirectory(prefix="ips-bench-") as folder:
        path = Path(folder) / "slide.h5"
        _write(path, bag)
        source = open_features(path)
        net = _model(bag, device)
        paper = PaperIPS(net)
        batch = paper.load([source])  # (1, N, D_in)
        order = _order(bag.rows, device)
        arms: dict[str, Callable[[], Tensor]] = {
            "baseline": lambda: paper.select(batch, order).indices,
            "ours": lambda: net.select([source], load="lazy", seed=0).selection.indices,
        }
        taken = in_turns(arms, rounds=rounds, device=device, log=log)
        agreement = compare(taken.first["baseline"], taken.first["ours"], [source])
        peaks = {}
        for arm in arms:
            peaks[arm] = fresh(peak_of_arm, arm, path, bag)
            log(f"memory, {arm}: {peaks[arm].above / 1e6:.0f} MB above its start")
    saved = peaks["baseline"].above / max(peaks["ours"].above, 1)
    return {
        "case": "features",
        "settings": asdict(bag) | {"stored": "float16"},
        "seconds": taken.seconds,
        "vram": taken.vram,
        "ratios": {"ours": taken.ratio("ours", to="baseline")},
        "agreement": {"ours": agreement},
        "memory": {arm: asdict(peak) | {"above": peak.above} for arm, peak in peaks.items()},
        "memory_ratio": saved,
        "bag_bytes": bag.rows * bag.inputs * 4,
        "notes": [
            f"features: {peaks['baseline'].above / 1e6:,.0f} MB above the process's start with "
            f"the bag in memory (a bag is {bag.rows * bag.inputs * 4 / 1e6:,.0f} MB), "
            f"{peaks['ours'].above / 1e6:,.0f} MB from the file: {saved:.1f} times less"
        ],
    }


def peak_of_arm(arm: str, path: Path, bag: Bag) -> Peak:
    """Memory of one selection on the CPU, from opening the file on."""
    device = torch.device("cpu")
    net = _model(bag, device)  # trained a little, so that all libraries are loaded by now

    def baseline() -> None:
        paper = PaperIPS(net)
        paper.select(paper.load([open_features(path)]), _order(bag.rows, device))

    def ours() -> None:
        net.select([open_features(path)], load="lazy", seed=0)

    return peak_of({"baseline": baseline, "ours": ours}[arm])


def _model(bag: Bag, device: torch.device) -> IPSNet:
    net = projector_net(inputs=bag.inputs, dim=bag.dim, keep=bag.keep, chunk=bag.chunk)
    features = torch.randn(64, bag.inputs, generator=torch.Generator().manual_seed(1))
    sources = [MemoryPatches(part) for part in features.split(32)]
    return settled(net.to(device), sources, {"tumour": torch.tensor([0, 1])}, steps=4)


def _write(path: Path, bag: Bag) -> None:
    generator = torch.Generator().manual_seed(0)
    with FeatureWriter(path, patch_size=256, extent=256) as writer:
        for rows in torch.arange(bag.rows).split(1024):
            features = torch.randn(len(rows), bag.inputs, generator=generator)
            coords = np.stack([rows.numpy() % 256, rows.numpy() // 256], axis=1) * 256
            writer.append(features, coords)


def _order(count: int, device: torch.device) -> Tensor:
    return selection.shuffled(torch.ones(1, count, dtype=torch.bool), seed=0).to(device)
