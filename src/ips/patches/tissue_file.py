"""Save and load the result of the tissue filter, as an HDF5 file that other tools read too.

Letters: n patches with tissue.
"""

from __future__ import annotations

import io
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import h5py
import numpy as np

from ips.errors import PatchError, shown
from ips.files import atomic_write
from ips.images import Image
from ips.patches import hdf5
from ips.patches.coords_file import check_slide
from ips.patches.image import Edge, ImagePatches
from ips.patches.mask import Mask, divided
from ips.patches.tissue import Background, Tissue, TissueSettings

FORMAT = "ips-tissue"

_REMEDY = "delete it and run ips slides tissue again"


def save_tissue(path: str | Path, tissue: Tissue) -> None:
    """Write the result of the tissue filter to an HDF5 file, atomically.

    ``coords`` ``(n, 2)`` are the corners of the patches with tissue in level-0 pixels, with the
    attributes of TRIDENT and, if the patches are read from a level without resizing, of CLAM.
    ``indices`` ``(n,)`` are their indices in the grid, and ``mask`` ``(h, w)`` is 1 where a pixel
    of the searched level is tissue.
    """
    path, buffer = Path(path), io.BytesIO()  # in memory first: HDF5 may crash on a full disk
    with h5py.File(buffer, "w") as file:
        file.attrs.update(format=FORMAT, version=1)
        coords = file.create_dataset("coords", data=tissue.patches.coords[tissue.kept])
        coords.attrs.update(_geometry(tissue.patches))
        indices = file.create_dataset("indices", data=tissue.kept)
        indices.attrs.update(asdict(tissue.settings), fluorescent=tissue.fluorescent)
        optional = {"threshold": tissue.threshold, "reason": tissue.reason}
        indices.attrs.update({key: value for key, value in optional.items() if value is not None})
        if tissue.mask is not None:
            _write_mask(file, tissue.mask)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as stream:
        stream.write(buffer.getbuffer())


def is_tissue_file(path: Path) -> bool:
    """Whether :func:`save_tissue` wrote this HDF5 file."""
    with hdf5.opened(path, what="a coordinate file", remedy="make it again") as file:
        return bool(hdf5.attributes(file).get("format") == FORMAT)


def load_tissue(path: str | Path, image: Image) -> Tissue:
    """Read a file of :func:`save_tissue`; raise if it belongs to another slide than ``image``."""
    path = Path(path)
    if not path.is_file():
        raise PatchError(f"{path} does not exist: run ips slides tissue")
    with hdf5.opened(path, what="a tissue file", remedy=_REMEDY) as file:
        coords, indices = hdf5.member(file, "coords"), hdf5.member(file, "indices")
        if hdf5.attributes(file).get("format") != FORMAT or not isinstance(indices, h5py.Dataset):
            raise PatchError(f"{path} was not written by ips slides tissue: give one that was")
        geometry, found = ({} if a is None else hdf5.attributes(a) for a in (coords, indices))
        kept = hdf5.read_coords(indices, name=str(path))
        check_slide(image, geometry, path)
        settings = _settings(found, path)
        mask = _read_mask(file, image, settings, path)
    size, stride, downsample = (
        hdf5.required_number(geometry, key, name=str(path))
        for key in ("patch_size", "stride", "patch_downsample")
    )
    threshold = hdf5.number(found, "threshold", name=str(path), zero=True)
    edge: Any = geometry.get("edge")
    if edge not in get_args(Edge) or kept.ndim != 1:
        raise PatchError(f"{path} is damaged, its grid is incomplete: {_REMEDY}")
    patches = ImagePatches(
        image, patch_size=int(size), stride=int(stride), downsample=downsample, edge=edge
    )
    if (np.diff(kept) <= 0).any() or (len(kept) and not 0 <= kept[0] <= kept[-1] < len(patches)):
        raise PatchError(f"{path} is damaged, its patches are not those of {image.name}: {_REMEDY}")
    return Tissue(
        patches,
        kept,
        settings,
        threshold=None if threshold is None else int(threshold),
        fluorescent=bool(found.get("fluorescent")),
        reason=hdf5.text(found, "reason", name=str(path)),
        mask=mask,
    )


def _settings(found: dict[str, Any], path: Path) -> TissueSettings:
    """How tissue was searched; files of earlier versions do not store all of it."""
    level, min_share = (
        hdf5.required_number(found, key, name=str(path), zero=True)
        for key in ("level", "min_share")
    )
    background: Any = found.get("background", "auto")
    if background not in get_args(Background):
        raise PatchError(f"{path} is damaged, its background is {shown(background)}: {_REMEDY}")
    return TissueSettings(
        level=int(level),
        min_share=min_share,
        background=background,
        skip_pen=bool(found.get("skip_pen")),
        skip_blurred=bool(found.get("skip_blurred")),
    )


def _write_mask(file: h5py.File, mask: Mask) -> None:
    """Store the part of a mask that has blocks: the scanned region."""
    corners = np.array([(x, y, x + w, y + h) for (x, y, w, h), _ in mask.blocks])
    (left, top), (right, bottom) = corners[:, :2].min(axis=0), corners[:, 2:].max(axis=0)
    shape = (bottom - top, right - left)
    chunks = min(int(shape[0]), 256), min(int(shape[1]), 1024)
    pixels = file.create_dataset("mask", shape, np.uint8, chunks=chunks, compression="gzip")
    pixels.attrs.update(left=left, top=top, downsample=mask.step)
    for (x, y, w, h), part in mask.parts():
        pixels[y - top : y - top + h, x - left : x - left + w] = part


def _read_mask(file: h5py.File, image: Image, settings: TissueSettings, path: Path) -> Mask | None:
    """The stored mask; None if there is no tissue, or in a file of an earlier version."""
    stored, level = hdf5.member(file, "mask"), settings.level
    if stored is None:
        return None
    assert level is not None
    image.tile_size(level)  # raises if there is no such level
    left, top = (
        int(hdf5.required_number(hdf5.attributes(stored), key, name=str(path), zero=True))
        for key in ("left", "top")
    )
    width, height = image.level_dimensions[level]
    is_array = isinstance(stored, h5py.Dataset) and len(stored.shape) == 2
    if not is_array or stored.shape[0] + top > height or stored.shape[1] + left > width:
        raise PatchError(f"{path} is damaged, its mask is not that of {image.name}: {_REMEDY}")
    parts = (
        ((x + left, y + top, w, h), stored[y : y + h, x : x + w] > 0)
        for x, y, w, h in divided((stored.shape[1], stored.shape[0]))
    )
    return Mask.of(image.level_downsamples[level], (width, height), parts)


def _geometry(patches: ImagePatches) -> dict[str, int | float | str]:
    """Attributes of ``coords``: those of TRIDENT and CLAM, and our own."""
    image, grid = patches.image, patches.grid
    width, height = image.dimensions
    found: dict[str, int | float | str] = {
        "name": Path(image.name).stem,
        "patch_size": patches.patch_size,
        "patch_size_level0": patches.extent,
        "overlap": grid.patch - grid.stride,
        "level0_width": width,
        "level0_height": height,
        "patch_downsample": patches.downsample,
        "stride": grid.stride,
        "edge": grid.edge,
        "unit": "px",
    }
    if patches.downsample in image.level_downsamples:
        found["patch_level"] = image.level_downsamples.index(patches.downsample)
    # By convention 10 µm per pixel are 1x, where a slide does not state its magnification.
    magnification = image.magnification or (10 / (sum(image.mpp) / 2) if image.mpp else None)
    if magnification is not None:
        found["level0_magnification"] = magnification
        found["target_magnification"] = magnification / patches.downsample
    if image.mpp is not None:
        found["mpp"] = sum(image.mpp) / 2
    return found
