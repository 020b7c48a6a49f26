"""Write feature files in the layout of every supported tool."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from ips.patches.feature_writer import FeatureWriter
from ips.patches.features import FeatureBag, open_features

N, D = 150, 12
RANDOM = np.random.default_rng(0)
FEATURES = RANDOM.standard_normal((N, D)).astype(np.float32)
PIXELS = np.stack(np.divmod(np.arange(N), 15)[::-1], axis=1) * 512  # x, y


def write_clam(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("features", data=FEATURES, chunks=(32, D), maxshape=(None, D))
        file.create_dataset("coords", data=PIXELS.astype(np.int32), chunks=(32, 2))


def write_trident(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("features", data=FEATURES, chunks=(1, D), maxshape=(None, D))
        file["features"].attrs.update(name="slide", savetodir="None", encoder="uni_v1")
        file.create_dataset("coords", data=PIXELS, chunks=(1, 2))
        file["coords"].attrs.update(
            patch_size=256,
            patch_size_level0=512,
            level0_magnification=40,
            target_magnification=20,
            overlap=0,
            name="slide",
        )


def write_leading_axis(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["features"] = FEATURES[None]
        file["coords"] = PIXELS[None]


def write_stamp(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["feats"] = FEATURES.astype(np.float16)
        file["coords"] = (PIXELS * 0.25).astype(np.float32)
        file.attrs.update(
            stamp_version="2.2.0",
            extractor="ctranspath",
            unit="um",
            tile_size_um=128.0,
            tile_size_px=224,
        )


def write_stamp_legacy(path: Path) -> None:
    """Tiles of 256 µm, 1,024 px at 0.25 µm/px, which the file counts as 224 each."""
    with h5py.File(path, "w") as file:
        file["feats"] = FEATURES.astype(np.float16)
        file["coords"] = PIXELS // 512 * 224


def write_stamp_legacy_px(path: Path) -> None:
    """The same with a unit: pixels of tiles, not of the slide."""
    write_stamp_legacy(path)
    with h5py.File(path, "a") as file:
        file.attrs.update(unit="px", tile_size=224)


def write_paper(path: Path) -> None:
    with h5py.File(path, "w") as file:
        for label, slide in enumerate(("normal_001", "tumor_001")):
            group = file.create_group(slide)
            array = FEATURES + label
            group.create_dataset("img", data=array, compression="gzip", compression_opts=9)
            group.create_dataset("pos", data=np.arange(N) * 3, compression="gzip")
            group.attrs["label"] = np.int64(label)


def write_ours(path: Path) -> None:
    with FeatureWriter(
        path, patch_size=256, extent=512, level=1, mpp=0.25, encoder="resnet50", dtype="float32"
    ) as writer:
        for start in range(0, N, 64):
            rows = slice(start, start + 64)
            writer.append(torch.from_numpy(FEATURES[rows]), PIXELS[rows])


ROW = np.stack([np.arange(N) * 3, np.zeros(N, dtype=np.int64)], axis=1)
# writer, group, kind, features, coords, extent
LAYOUTS: dict[str, tuple[Callable[[Path], None], str | None, str, Any, Any, int | None]] = {
    "clam": (write_clam, None, "clam", FEATURES, PIXELS, None),
    "trident": (write_trident, None, "trident", FEATURES, PIXELS, 512),
    "leading axis": (write_leading_axis, None, "clam", FEATURES, PIXELS, None),
    "stamp": (write_stamp, None, "stamp", FEATURES.astype(np.float16), PIXELS, 512),
    "stamp legacy": (
        write_stamp_legacy,
        None,
        "stamp",
        FEATURES.astype(np.float16),
        PIXELS * 2,
        1024,
    ),
    "stamp legacy px": (
        write_stamp_legacy_px,
        None,
        "stamp",
        FEATURES.astype(np.float16),
        PIXELS * 2,
        1024,
    ),
    "paper": (write_paper, "tumor_001", "ips-paper", FEATURES + 1, ROW, None),
    "ours": (write_ours, None, "ips", FEATURES, PIXELS, 512),
}


def open_layout(folder: Path, name: str) -> FeatureBag:
    return open_features(folder / f"{name}.h5", group=LAYOUTS[name][1], mpp=0.25)
