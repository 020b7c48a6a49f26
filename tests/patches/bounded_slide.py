"""A slide of two levels whose scanned part does not begin at its corner, and its features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import torch
from torch import Tensor

import ips.images
from ips.images import Image
from ips.patches import FeatureWriter, ImagePatches

BOUNDS = 24, 8, 200, 144
MPP = 0.25


def give_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let slides of features have bounds: no writer of such files is at hand."""

    def open_bounded(path: Path, **options: Any) -> Image:
        image = ips.images.open_image(path, **options)
        image.bounds = BOUNDS
        return image

    monkeypatch.setattr("ips.patches.features.open_image", open_bounded)


def write_slide(path: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (160, 240, 3), dtype=np.uint8)
    options: dict[str, Any] = {"photometric": "rgb", "tile": (32, 32)}
    path.parent.mkdir(exist_ok=True)
    with tifffile.TiffWriter(path) as file:
        scale: dict[str, Any] = {"resolution": (1e4 / MPP, 1e4 / MPP), "resolutionunit": 3}
        file.write(pixels, **options, **scale)
        file.write(np.ascontiguousarray(pixels[::2, ::2]), subfiletype=1, **options)
    return path


def patches_of(slide: Path) -> ImagePatches:
    """Patches of the second level."""
    image = ips.images.open_image(slide)
    image.bounds = BOUNDS
    return ImagePatches(image, patch_size=20, stride=10, downsample=2.0)


def features_of(patches: ImagePatches) -> Tensor:
    return torch.rand(len(patches), 8, generator=torch.Generator().manual_seed(0))


def write_features(path: Path, patches: ImagePatches, **options: Any) -> Path:
    settings: dict[str, Any] = {"size": patches.image.dimensions, "mpp": MPP, **options}
    with FeatureWriter(
        path, patch_size=20, extent=patches.extent, level=1, dtype="float32", **settings
    ) as writer:
        writer.append(features_of(patches), patches.coords)
    return path
