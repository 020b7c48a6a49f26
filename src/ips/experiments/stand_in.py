"""Random features of the size of CAMELYON16, to measure time and memory without its slides.

One bag is stored and serves as every image of a batch: the file has one group per image, and all
groups are links to the same arrays. Neither time nor memory of a step depends on the values.
"""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from ips.config import Config, TableConfig
from ips.data.table import write_csv
from ips.experiments.arms import TABLE
from ips.files import atomic_path

PATCHES = 251_812
"""Number of patches of the largest slide of CAMELYON16."""

FEATURES = 2048
"""Number of features of a patch, from a ResNet-50."""

_IMAGES = 270  # training slides of CAMELYON16; links take no space
_ROWS = 32  # rows of a chunk of the file, as in our own feature files
_BLOCK = 32 * _ROWS  # rows that are drawn at a time


def with_stand_in(config: Config, folder: Path) -> Config:
    """Replace a missing table of feature files by that of the stand-in in ``folder``."""
    if not isinstance(config.data, TableConfig) or config.data.csv.is_file():
        return config
    update = {"csv": (folder / TABLE).resolve(), "root": None, "objects": None}
    return config.model_copy(update={"data": config.data.model_copy(update=update)})


def write_stand_in(folder: Path, *, patches: int = PATCHES, features: int = FEATURES) -> None:
    """Write the features and their table, unless they are in the folder."""
    if (folder / TABLE).is_file():
        return
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"slide_{number:03d}" for number in range(_IMAGES + 1)]
    rng = np.random.default_rng(0)
    with atomic_path(folder / "features.h5") as part, h5py.File(part, "w") as file:
        first = file.create_group(names[0])
        shape, chunks = (patches, features), (min(_ROWS, patches), features)
        rows = first.create_dataset("img", shape=shape, dtype=np.float16, chunks=chunks)
        for start in range(0, patches, _BLOCK):
            count = min(_BLOCK, patches - start)
            rows[start : start + count] = rng.standard_normal((count, features), np.float32)
        first["pos"] = np.arange(patches)
        for name in names[1:]:
            file[name] = first
    # The last image is the test split that a table must have.
    lines = [
        (f"features.h5::{name}", number % 2, "test" if number == _IMAGES else "train")
        for number, name in enumerate(names)
    ]
    write_csv(folder / TABLE, ["path", "tumor", "split"], lines)  # last: it is complete
