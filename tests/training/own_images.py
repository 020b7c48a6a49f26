"""Tables of small images, slides and feature files, for tests of training on one's own data."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import h5py
import numpy as np
import tifffile
from PIL import Image


def save_noise(path: Path, *, seed: int, height: int = 40, width: int = 48) -> None:
    """Write a picture of noise."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def photographs(folder: Path, *, count: int = 12, every: int = 2, side: int = 40) -> Path:
    """Pictures of noise; every second, or so, is brighter and of the class "high"."""
    for number in range(count):
        noise = np.random.default_rng(number).integers(0, 120, (side, side, 3), dtype=np.uint8)
        Image.fromarray(noise + 100 * (number % every == 0)).save(folder / f"{number}.png")
    names = [f"{number}.png" for number in range(count)]
    return _table(folder, names, ["high" if i % every == 0 else "low" for i in range(count)])


def slides(folder: Path, *, count: int = 12, micrometres: float = 0.5) -> Path:
    """TIFFs that state their resolution."""
    pixels = np.full((40, 40, 3), 200, np.uint8)
    resolution = (10_000 / micrometres, 10_000 / micrometres)
    for number in range(count):
        tifffile.imwrite(
            folder / f"{number}.tif",
            pixels,
            photometric="rgb",
            resolution=resolution,
            resolutionunit="centimeter",
        )
    return _table(folder, [f"{i}.tif" for i in range(count)], [str(i % 2) for i in range(count)])


def features(folder: Path, *, count: int = 12, task: str = "grade", every: int = 2) -> Path:
    """Feature files of 12 values per patch."""
    for number in range(count):
        rng = np.random.default_rng(number)
        with h5py.File(folder / f"{number}.h5", "w") as file:
            file["features"] = rng.standard_normal((5 + number, 12)).astype(np.float32)
            file["coords"] = np.arange(2 * (5 + number), dtype=np.int32).reshape(-1, 2)
    labels = [str(int(i % every == 0)) for i in range(count)]
    return _table(folder, [f"{i}.h5" for i in range(count)], labels, task=task)


def add_column(table: Path, name: str, values: Iterable[str]) -> None:
    """Add a column to a table, with a value for each row."""
    lines = zip(table.read_text().splitlines(), [name, *values], strict=True)
    table.write_text("\n".join(f"{line},{value}" for line, value in lines))


def _table(folder: Path, names: list[str], labels: list[str], *, task: str = "grade") -> Path:
    lines = [f"{name},{label}" for name, label in zip(names, labels, strict=True)]
    table = folder / "labels.csv"
    table.write_text("\n".join([f"path,{task}", *lines]))
    return table
