"""Save and load the result of the tissue filter, as an HDF5 file that other tools read too.

Letters: n patches with tissue.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, get_args

import h5py
import numpy as np

from ips.errors import PatchError
from ips.files import atomic_write
from ips.images import Image
from ips.patches import Edge, ImagePatches, hdf5
from ips.patches.tissue import Tissue
from ips.slides.coords import check_slide

FORMAT = "ips-tissue"


def save_tissue(path: str | Path, tissue: Tissue) -> None:
    """Write the result of the tissue filter to an HDF5 file, atomically.

    ``coords`` ``(n, 2)`` are the corners of the patches with tissue in level-0 pixels, with the
    attributes of TRIDENT and, if the patches are read from a level without resizing, of CLAM.
    ``indices`` ``(n,)`` are their indices in the grid.
    """
    path, buffer = Path(path), io.BytesIO()  # in memory first: HDF5 may crash on a full disk
    with h5py.File(buffer, "w") as file:
        file.attrs.update(format=FORMAT, version=1)
        coords = file.create_dataset("coords", data=tissue.patches.coords[tissue.kept])
        coords.attrs.update(_geometry(tissue.patches))
        indices = file.create_dataset("indices", data=tissue.kept)
        indices.attrs.update(
            level=tissue.level, min_share=tissue.min_share, fluorescent=tissue.fluorescent
        )
        optional = {"threshold": tissue.threshold, "reason": tissue.reason}
        indices.attrs.update({key: value for key, value in optional.items() if value is not None})
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as stream:
        stream.write(buffer.getbuffer())


def load_tissue(path: str | Path, image: Image) -> Tissue:
    """Read a file of :func:`save_tissue`; raise if it belongs to another slide than ``image``."""
    path = Path(path)
    if not path.is_file():
        raise PatchError(f"{path} does not exist: run ips slides tissue")
    remedy = "delete it and run ips slides tissue again"
    with hdf5.opened(path, what="a tissue file", remedy=remedy) as file:
        coords, indices = hdf5.member(file, "coords"), hdf5.member(file, "indices")
        if hdf5.attributes(file).get("format") != FORMAT or not isinstance(indices, h5py.Dataset):
            raise PatchError(f"{path} was not written by ips slides tissue: give one that was")
        geometry, found = ({} if a is None else hdf5.attributes(a) for a in (coords, indices))
        kept = hdf5.read_coords(indices, name=str(path))
    check_slide(image, geometry, path)
    size, stride, downsample = (
        hdf5.required_number(geometry, key, name=str(path))
        for key in ("patch_size", "stride", "patch_downsample")
    )
    level, min_share = (
        hdf5.required_number(found, key, name=str(path), zero=True)
        for key in ("level", "min_share")
    )
    threshold = hdf5.number(found, "threshold", name=str(path), zero=True)
    edge: Any = geometry.get("edge")
    if edge not in get_args(Edge) or kept.ndim != 1:
        raise PatchError(f"{path} is damaged, its grid is incomplete: {remedy}")
    patches = ImagePatches(
        image, patch_size=int(size), stride=int(stride), downsample=downsample, edge=edge
    )
    if (np.diff(kept) <= 0).any() or (len(kept) and not 0 <= kept[0] <= kept[-1] < len(patches)):
        raise PatchError(f"{path} is damaged, its patches are not those of {image.name}: {remedy}")
    return Tissue(
        patches,
        kept,
        level=int(level),
        threshold=None if threshold is None else int(threshold),
        fluorescent=bool(found.get("fluorescent")),
        min_share=min_share,
        reason=hdf5.text(found, "reason", name=str(path)),
    )


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
