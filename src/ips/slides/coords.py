"""The patches of a slide: a whole grid, or the patches at stored coordinates.

Stored coordinates come from ``ips slides tissue``, CLAM or TRIDENT: an HDF5 dataset ``coords``
``(n, 2)`` of top-left corners in level-0 pixels, with or without the patch size as attributes.
Letters: n patches at stored coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py

from ips.errors import PatchError
from ips.images import Channels, Image, downsample_for, open_image
from ips.images.resolution import TOLERANCE
from ips.patches import Coords, Edge, ImagePatches, hdf5
from ips.slides.presets import Preset

_PATCH_SIZE = 256  # of the paper


class NoTissueError(PatchError):
    """A slide on which no tissue was found."""


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
    file = _coords_file(Path(coords), path.stem)
    corners, attributes = _read_coords(file)
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
    stored = _stored_size(image, attributes, file)
    if stored is None:
        stored = size, resolution.downsample(image)
    else:
        _check_resolution(image, resolution, stored, file)
    size, downsample = stored
    return PatchesAt(image, corners, patch_size=size, downsample=downsample, channels=channels)


def _coords_file(folder: Path, stem: str) -> Path:
    """Coordinate file as named by CLAM or TRIDENT, in ``folder`` or its subfolder ``patches``."""
    for place in (folder, folder / "patches"):
        for name in (f"{stem}.h5", f"{stem}_patches.h5"):
            if (place / name).is_file():
                return place / name
    raise PatchError(
        f"{folder}: no {stem}.h5 with the coordinates of this slide: run ips slides tissue on it "
        "first"
    )


def _read_coords(file: Path) -> tuple[Coords, dict[str, Any]]:
    """Corners and attributes; ``reason`` tells why there are no corners."""
    with hdf5.opened(file, what="a coordinate file", remedy="make it again") as stored:
        array, indices = hdf5.member(stored, "coords"), hdf5.member(stored, "indices")
        if not isinstance(array, h5py.Dataset):
            raise PatchError(f"{file}: not a coordinate file, it has no coords: make it again")
        coords = hdf5.read_coords(array, name=str(file))
        attributes = hdf5.attributes(array)
        if indices is not None:
            found = hdf5.attributes(indices)
            attributes |= {"reason": found["reason"]} if "reason" in found else {}
    if coords.size and (coords.ndim != 2 or coords.shape[1] != 2):
        raise PatchError(f"{file}: coords is {coords.shape}, expected (n, 2) as x, y")
    return coords.reshape(-1, 2), attributes


def check_slide(image: Image, attributes: dict[str, Any], file: Path) -> None:
    """Raise if a coordinate file belongs to another slide with the same name."""
    sides = ("level0_width", "level0_height")
    stored = [hdf5.number(attributes, side, name=str(file)) for side in sides]
    if None not in stored and stored != list(image.dimensions):
        width, height = image.dimensions
        raise PatchError(
            f"{file}: coordinates of a slide of {stored[0]:g} x {stored[1]:g} px, but "
            f"{image.name} has {width} x {height}: the file belongs to another slide of this name: "
            "run ips slides tissue on this one"
        )


def _stored_size(image: Image, attributes: dict[str, Any], file: Path) -> tuple[int, float] | None:
    """Patch size and level-0 pixels per pixel of a patch, if the file stores them."""
    keys = ("patch_size", "patch_downsample", "patch_size_level0", "patch_level")
    size, downsample, extent, level = (
        hdf5.number(attributes, key, name=str(file), zero=key == "patch_level") for key in keys
    )
    if size is None:
        return None
    if not 1 <= round(size) <= 2**20:
        raise PatchError(f"{file}: its patches would have {size:g} px: make the file again")
    if downsample is not None:
        return round(size), downsample
    if extent is not None:
        return round(size), extent / size
    return None if level is None else (round(size), downsample_for(image, level=int(level)))


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
