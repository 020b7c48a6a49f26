"""The folders in which TRIDENT and the tools beside it look for features."""

from __future__ import annotations

import re
from pathlib import Path

from ips.errors import ConfigError
from ips.slides.coords import Resolution
from ips.slides.presets import find_preset


def trident_folder(out: Path, resolution: Resolution, *, encoder: str) -> Path:
    """The folder of an encoder's features, in a job folder of TRIDENT.

    >>> trident_folder(Path("job"), Resolution(256, mpp=0.5), encoder="uni").as_posix()
    'job/20x_256px_0px_overlap/features_uni_v1'
    """
    magnification = resolution.magnification or (10 / resolution.mpp if resolution.mpp else None)
    if magnification is None or resolution.patch_size is None:
        raise ConfigError(
            "--layout trident: TRIDENT names its folders by patch size and magnification: give "
            "--patch-size, and --magnification or --mpp"
        )
    preset = find_preset(encoder)
    name = (preset and preset.trident) or re.sub(r"[^\w.-]+", "_", encoder)
    grid = f"{magnification:g}x_{resolution.patch_size}px_0px_overlap"
    return out / grid / f"features_{name}"
