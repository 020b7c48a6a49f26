"""Layouts of feature files: the names and units that each tool uses in HDF5.

    clam        features (N, D)     coords (N, 2) in full-resolution pixels, no attributes
    trident     features (N, D)     coords (N, 2) in full-resolution pixels, patch_size_level0
    stamp       feats (N, D)        coords (N, 2) in micrometres, tile_size_um; in older versions
                                    in pixels of a tile, 224 px for 256 µm
    ips-paper   <slide>/img (N, D)  <slide>/pos (N,), a sequence number; label on the group
    ips         written by ``FeatureWriter``: names of trident, with unit, mpp and encoder

The layout follows from names, shapes and attributes; no features are read.
Letters: N patches of an image, D features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import h5py
import numpy as np

from ips.errors import PatchError, shown
from ips.patches import hdf5

FORMAT = "ips-features"
VERSION = 1

Kind = Literal["clam", "trident", "stamp", "ips-paper", "ips"]

_NAMES = (("features", "coords"), ("feats", "coords"), ("img", "pos"))


@dataclass(frozen=True)
class Layout:
    """Position and meaning of the arrays of one bag in a file.

    Args:
        kind: tool that defined the layout.
        features: path of the ``(N, D)`` array inside the file.
        coords: path of the coordinates inside the file.
        count: number of patches, N.
        width: number of features, D.
        microns: micrometres per unit of the coordinates; None if the unit is pixels.
        side: side of a patch in full-resolution pixels, or in micrometres if ``microns`` is set.
        attributes: all attributes that the tool stored, as plain values.
    """

    kind: Kind
    features: str
    coords: str
    count: int
    width: int
    microns: float | None
    side: float | None
    attributes: dict[str, Any]


def inspect(file: h5py.File, *, group: str | None, name: str) -> Layout:
    """Return the layout of ``file``, or of one group in it; messages call it ``name``."""
    root = _root(file, group=group, name=name)
    names = next((pair for pair in _NAMES if all(_is_array(root, key) for key in pair)), None)
    if names is None:
        raise _unknown_layout(root, name)
    features, coords = (root[key] for key in names)
    count, width = _shape(features, coords, name)

    attributes = hdf5.attributes(file, root, coords, features)
    kind = _kind(names[0], attributes)
    version = hdf5.number(attributes, "version", name=name) if kind == "ips" else None
    if version is not None and version > VERSION:
        raise PatchError(
            f"{name}: version {attributes['version']} of {FORMAT}, this installation reads up to "
            f"{VERSION}: update it"
        )
    microns, side = _units(kind, attributes, coords, name)
    return Layout(
        kind=kind,
        features=features.name,
        coords=coords.name,
        count=count,
        width=width,
        microns=microns,
        side=side,
        attributes=attributes,
    )


def slides(file: h5py.File) -> list[str]:
    """Groups in the layout of the paper's authors, sorted by name."""
    return sorted(
        key
        for key in file
        if _is_stored(file, key)
        and isinstance(item := file[key], h5py.Group)
        and _is_stored(item, "img")
        and _is_stored(item, "pos")
    )


def _is_stored(group: h5py.Group, key: str) -> bool:
    """Whether ``key`` exists and is not a link, which may lead to another file."""
    return isinstance(group.get(key, getlink=True), h5py.HardLink)


def _root(file: h5py.File, *, group: str | None, name: str) -> h5py.Group:
    if group is None:
        return file
    root: h5py.Group | h5py.Dataset | None = file
    for part in filter(None, group.split("/")):
        root = hdf5.member(root, part) if isinstance(root, h5py.Group) else None
    if not isinstance(root, h5py.Group):
        raise PatchError(f"{name}: no group {shown(group)} in this file, only {_listing(file)}")
    return root


def _is_array(group: h5py.Group, key: str) -> bool:
    return isinstance(hdf5.member(group, key), h5py.Dataset)


def _unknown_layout(root: h5py.Group, name: str) -> PatchError:
    found = slides(root)
    if found:
        return PatchError(
            f"{name}: contains {len(found)} slides, one group each: name one of them, "
            f"as in {name}::{found[0]}"
        )
    return PatchError(
        f"{name}: expected the arrays features and coords (CLAM, TRIDENT), feats and coords "
        f"(STAMP) or groups with img and pos (IPS), found {_listing(root)}"
    )


def _listing(group: h5py.Group) -> str:
    keys = sorted(shown(key, quote=False) for key in group)
    more = f" and {len(keys) - 5} more" if len(keys) > 5 else ""
    return (", ".join(keys[:5]) or "nothing") + more


def _shape(features: h5py.Dataset, coords: h5py.Dataset, name: str) -> tuple[int, int]:
    """Check the shapes and return N and D; some tools add a leading axis of length 1."""
    shape, places = features.shape, coords.shape
    floats = features.dtype.kind == "f" and features.dtype.itemsize <= 8
    if not (len(shape) == 2 or (len(shape) == 3 and shape[0] == 1)) or not floats:
        raise PatchError(
            f"{name}: {features.name} is {features.dtype} {shape}, expected floats (N, D), one row "
            f"per patch: embeddings of a whole slide are not a bag of patches"
        )
    if coords.dtype.kind not in "iuf":
        raise PatchError(
            f"{name}: {coords.name} is {coords.dtype}, expected numbers: extract the file again"
        )
    flat = coords.ndim == 1 and coords.name.endswith("/pos")
    if not flat and not (len(places) in (2, 3) and places[-1] == 2):
        raise PatchError(f"{name}: {coords.name} is {places}, expected (N, 2) as x, y")
    count, width = int(shape[-2]), int(shape[-1])
    if count == 0 or width == 0:
        raise PatchError(
            f"{name}: an empty bag of {count} patches with {width} features: extract again, or "
            "leave it out"
        )
    if int(np.prod(places)) != count * (1 if flat else 2):
        raise PatchError(
            f"{name}: {count} features but coordinates of shape {places}: one array was not "
            f"written to the end, extract again"
        )
    return count, width


def _kind(features: str, attributes: dict[str, Any]) -> Kind:
    if features == "img":
        return "ips-paper"
    if features == "feats":
        return "stamp"
    if attributes.get("format") == FORMAT:
        return "ips"
    return "trident" if "patch_size_level0" in attributes else "clam"


def _units(
    kind: Kind, attributes: dict[str, Any], coords: h5py.Dataset, name: str
) -> tuple[float | None, float | None]:
    """Return ``microns`` and ``side`` of a ``Layout``."""
    unit = hdf5.text(attributes, "unit", name=name)
    sides = {
        key: hdf5.number(attributes, key, name=name)
        for key in ("patch_size_level0", "tile_size_um", "tile_size")
    }
    if unit in (None, "px") and kind != "stamp":
        return None, sides["patch_size_level0"]
    if unit == "um" or (unit is None and sides["tile_size_um"] is not None):
        return 1.0, sides["tile_size_um"] or sides["tile_size"]
    # Older versions of STAMP count in pixels of tiles: 224 px are 256 µm.
    if unit in (None, "px") and round(sides["tile_size"] or _stride(coords, name)) == 224:
        return 256 / 224, 256.0
    expected = "um, or px of tiles of 224" if kind == "stamp" else "px or um"
    given = shown(unit or "not given", quote=False)
    raise PatchError(
        f"{name}: the unit of its coordinates is {given}, expected {expected}: "
        f"extract the features again with a version that writes unit and tile_size_um"
    )


def _stride(coords: h5py.Dataset, name: str) -> float:
    """Smallest distance between two columns or rows of patches, 0 for a single patch."""
    places = hdf5.read_coords(coords, name=name).reshape(-1, 2)
    steps = [np.diff(np.unique(axis)) for axis in places.T]
    return float(min((step.min() for step in steps if len(step)), default=0))
