"""Small data sets of pictures and tables, and what is found in them, for tests of advice."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np
from PIL import Image

from ips.advice.cost import Cost
from ips.advice.folders import find_data
from ips.advice.found import FoundData, Hints

COST = Cost(open=0.03, read=1e-5, score=1e-3, learn=1e-2, saved=10**6, patch=12_288, model=10**8)


def draw(path: Path, *, seed: int, size: tuple[int, int] = (96, 64), mode: str = "RGB") -> Path:
    """Save a picture of noise, large-scale and fine, which differs between seeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    coarse = random.integers(0, 200, (4, 6, 3), dtype=np.uint8)
    pixels = np.asarray(Image.fromarray(coarse).resize(size, Image.Resampling.NEAREST))
    pixels = pixels + random.integers(0, 50, pixels.shape, dtype=np.uint8)
    Image.fromarray(pixels).convert(mode).save(path)
    return path


def store(path: Path, *, seed: int, patches: int = 12, width: int = 16) -> Path:
    """Save a feature file as CLAM writes them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    with h5py.File(path, "w") as file:
        file["features"] = random.standard_normal((patches, width)).astype(np.float32)
        file["coords"] = np.arange(2 * patches, dtype=np.int32).reshape(patches, 2)
    return path


def write_table(path: Path, rows: Sequence[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(rows) + "\n")
    return path


def find(place: Path, **hints: object) -> FoundData:
    return find_data(place, Hints(**hints))  # type: ignore[arg-type]


def labels(data: FoundData) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in data.rows:
        found.setdefault(next(iter(row.labels.values())), []).append(row.path.name)
    return found
