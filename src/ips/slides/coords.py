"""The patches of a slide: a whole grid, or the patches at stored coordinates.

Stored coordinates come from ``ips slides tissue``, CLAM or TRIDENT: an HDF5 dataset ``coords``
``(n, 2)`` of top-left corners in level-0 pixels, with or without the patch size as attributes.
Letters: n patches at stored coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ips.errors import PatchError
from ips.images import Channels, Image, downsample_for, open_image
from ips.images.resolution import TOLERANCE
from ips.patches import Coords, Edge, ImagePatches
from ips.patches.coords_file import (
    NoTissueError,
    check_slide,
    find_coords,
    read_coords,
    stored_size,
)
from ips.slides.presets import Preset

_PATCH_SIZE = 256  # of the paper


class PatchesAt(ImagePatches):
    """Patches of an image at ``coords`` ``(n, 2)``, which need not lie on a grid."""

    def __init__(
        self,
        image: Image,
        coords: Coords,
        *,
        patch_size: int,
        downsample: float,
        channels: Channels = "as-is",
    ) -> None:
        options: dict[str, Any] = {"downsample": downsample, "channels": channels}
        super().__init__(image, patch_size=patch_size, edge="pad", **options)
        self.coords = coords

    def __len__(self) -> int:
        return len(self.coords)


@dataclass(frozen=True)
class Resolution:
    """Patch size and reading resolution; at most one of level, mpp, ... and scale is given."""

    patch_size: int | None = None
    level: int | None = None
    mpp: float | None = None
    magnification: float | None = None
    scale: float | None = None

    @property
    def given(self) -> bool:
        """Whether it says at which resolution to read."""
        ways = (self.level, self.mpp, self.magnification, self.scale)
        return any(way is not None for way in ways)

    def filled(self, default: Resolution) -> Resolution:
        """This resolution; what it leaves open is as in ``default``."""
        way = self if self.given else default
        return replace(way, patch_size=self.patch_size or default.patch_size)

    def downsample(self, image: Image) -> float:
        """Level-0 pixels per pixel at this resolution."""
        return downsample_for(
            image,
            level=self.level,
            mpp=self.mpp,
            magnification=self.magnification,
            scale=self.scale,
        )


def preset_resolution(preset: Preset | None) -> Resolution:
    """Patch size and resolution that an encoder was trained on."""
    return Resolution() if preset is None else Resolution(preset.patch_size, mpp=preset.mpp)


def slide_patches(
    path: str | Path,
    *,
    resolution: Resolution,
    coords: str | Path | None = None,
    edge: Edge = "drop",
    channels: Channels = "as-is",
    white: float | None = None,
) -> ImagePatches:
    """Open the patches of a slide.

    Args:
        path: file of the slide.
        resolution: how to cut patches; 256 px at level 0 by default.
        coords: folder with a coordinate file for the slide; the whole grid by default. If the file
            stores the patch size, ``resolution`` must agree with it or be left empty.
        edge: of the whole grid, ``drop`` patches that leave the slide, or ``pad`` them with
            background.
        channels, white: see `ips.open_patches`.
    """
    path = Path(path)
    image = open_image(path, white=white)
    size = resolution.patch_size or _PATCH_SIZE
    if coords is None:
        downsample = resolution.downsample(image)
        return ImagePatches(
            image, patch_size=size, downsample=downsample, edge=edge, channels=channels
        )
    file = find_coords(Path(coords), path.stem)
    if file is None:
        raise PatchError(
            f"{coords}: no {path.stem}.h5 with the coordinates of this slide: run ips slides "
            "tissue on it first"
        )
    corners, attributes = read_coords(file)
    if not len(corners):
        reason = attributes.get("reason") or f"{file.name} has no coordinates"
        raise NoTissueError(f"{path.name}: no tissue: {reason}")
    if corners.min() < 0 or (corners >= image.dimensions).any():
        width, height = image.dimensions
        raise PatchError(
            f"{file}: coordinates lie outside {path.name}, which has {width} x {height} px: the "
            "file belongs to another slide, or its coordinates are not in level-0 pixels"
        )
    check_slide(image, attributes, file)
    stored = stored_size(image, attributes, file)
    if stored is None:
        stored = size, resolution.downsample(image)
    else:
        _check_resolution(image, resolution, stored, file)
    size, downsample = stored
    return PatchesAt(image, corners, patch_size=size, downsample=downsample, channels=channels)


def _check_resolution(
    image: Image, resolution: Resolution, stored: tuple[int, float], file: Path
) -> None:
    size, downsample = stored
    wanted_size = resolution.patch_size or size
    wanted = resolution.downsample(image) if resolution.given else downsample
    if wanted_size != size or abs(wanted / downsample - 1) > TOLERANCE:
        raise PatchError(
            f"{file}: coordinates of patches of {size} px at {downsample:g} level-0 pixels per "
            f"pixel, but {wanted_size} px at {wanted:g} were requested: run ips slides tissue with "
            "the same --encoder, patch size and resolution, or request those of the file"
        )
