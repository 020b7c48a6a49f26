"""A small model and small pictures for the tests of the viewer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

NASTY = "<img src=x onerror=alert(1)>"
CONFIG: dict[str, Any] = {
    "patches": {"size": 50, "edge": "pad"},
    "encoder": {"name": "thin-resnet", "stages": 1, "width": 8, "inputs": 1, "norm": True},
    "select": {"keep": 6, "chunk": 6},
    "aggregate": {"heads": 4, "position": True},
    "tasks": {
        "shape": {"kind": "multiclass", "classes": 3, "names": [NASTY, "ring", "bar"]},
        "marks": {"kind": "multilabel", "classes": 4},
    },
    "readout": "marks",
}


def picture(width: int, height: int, *, seed: int = 0) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """A smooth picture, which JPEG preserves well."""
    y, x = np.mgrid[:height, :width] / 40
    values = 127 + 60 * np.sin(x + seed) + 60 * np.cos(y * 1.3 + seed)
    return np.asarray(values, dtype=np.uint8)


def small_pictures(folder: Path, names: str) -> list[Path]:
    paths = [folder / f"{name}.png" for name in names]
    for seed, path in enumerate(paths):
        Image.fromarray(picture(100, 100, seed=seed)).save(path)
    return paths
