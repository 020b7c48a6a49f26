"""Read the files of patch coordinates that ``ips slides tissue``, CLAM and TRIDENT write.

They hold an HDF5 dataset ``coords`` ``(n, 2)`` of top-left corners in level-0 pixels, with or
without the patch size as attributes. Letters: n patches at stored coordinates.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py

from ips.errors import PatchError
from ips.images import Image, downsample_for
from ips.patches import hdf5
from ips.patches.source import Coords


class NoTissueError(PatchError):
    """A slide on which no tissue was found."""


def find_coords(folder: Path, stem: str) -> Path | None:
    """Coordinate file as named by CLAM or TRIDENT, in ``folder`` or its subfolder ``patches``."""
    places = (folder, folder / "patches")
    names = (f"{stem}.h5", f"{stem}_patches.h5")
    files = (place / name for place in places for name in names)
    return next((file for file in files if file.is_file()), None)


def read_coords(file: Path) -> tuple[Coords, dict[str, Any]]:
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


def stored_size(image: Image, attributes: dict[str, Any], file: Path) -> tuple[int, float] | None:
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
