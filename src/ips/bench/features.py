"""The select step on one slide's stored features: time, and memory in a new process per arm.

Letters: N rows of the bag, D_in features of a row, M kept, I per step.
"""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ips.bench.baseline import PaperIPS
from ips.bench.cases import Case, briefly_trained, projector_net
from ips.bench.comparison import compare_select_step
from ips.bench.peak import Peak, peak_memory, run_in_new_process
from ips.bench.timing import Log
from ips.models import IPSNet
from ips.patches import FeatureWriter, MemoryPatches, open_features


@dataclass(frozen=True)
class Bag:
    """Sizes of a feature file and of the model for it."""

    rows: int = 70_000
    inputs: int = 2048
    dim: int = 512
    keep: int = 5000
    chunk: int = 5000


QUICK = Bag(rows=500, inputs=32, dim=16, keep=40, chunk=40)


def compare_on_features(
    *, rounds: int, device: torch.device, quick: bool, log: Log
) -> dict[str, Any]:
    """Compare the bag as floats in memory with rows that are read from the file when needed."""
    bag = QUICK if quick else Bag()
    with tempfile.TemporaryDirectory(prefix="ips-bench-") as folder:
        path = Path(folder) / "slide.h5"
        _write(path, bag)
        settings = asdict(bag) | {"stored": "float16"}
        net, sources = _model(bag, device), [open_features(path)]
        case = Case("features", settings, net, sources, labels={}, load="lazy")
        result = compare_select_step(case, rounds=rounds, device=device, log=log)
        peaks = {}
        for arm in ("baseline", "ours"):
            peaks[arm] = run_in_new_process(measure_arm, arm, path, bag)
            log(f"memory, {arm}: {peaks[arm].above / 1e6:.0f} MB above its start")
    bag_bytes = bag.rows * bag.inputs * 4
    ratio = peaks["baseline"].above / max(peaks["ours"].above, 1)
    return result | {
        "memory": {arm: asdict(peak) | {"above": peak.above} for arm, peak in peaks.items()},
        "memory_ratio": ratio,
        "bag_bytes": bag_bytes,
        "notes": [
            f"features: {peaks['baseline'].above / 1e6:,.0f} MB above the start of the process "
            f"with the bag in memory (a bag has {bag_bytes / 1e6:,.0f} MB), "
            f"{peaks['ours'].above / 1e6:,.0f} MB from the file: {ratio:.1f} times less"
        ],
    }


def measure_arm(arm: str, path: Path, bag: Bag) -> Peak:
    """Memory of one selection on the CPU, including opening the file."""
    net = _model(bag, torch.device("cpu"))  # its brief training loads all libraries

    def select() -> None:
        source = open_features(path)
        if arm == "ours":
            net.select([source], load="lazy", seed=0)
        else:
            paper = PaperIPS(net)
            paper.select(paper.load([source]), seed=0)

    return peak_memory(select)


def _model(bag: Bag, device: torch.device) -> IPSNet:
    net = projector_net(inputs=bag.inputs, dim=bag.dim, keep=bag.keep, chunk=bag.chunk)
    features = torch.randn(64, bag.inputs, generator=torch.Generator().manual_seed(1))
    sources = [MemoryPatches(part) for part in features.split(32)]
    return briefly_trained(net.to(device), sources, {"tumour": torch.tensor([0, 1])})


def _write(path: Path, bag: Bag) -> None:
    generator = torch.Generator().manual_seed(0)
    with FeatureWriter(path, patch_size=256, extent=256) as writer:
        for rows in torch.arange(bag.rows).split(1024):
            features = torch.randn(len(rows), bag.inputs, generator=generator)
            coords = np.stack([rows.numpy() % 256, rows.numpy() // 256], axis=1) * 256
            writer.append(features, coords)
