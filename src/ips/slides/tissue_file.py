"""Save and load the result of the tissue filter, as an HDF5 file that other tools read too.

Letters: n patches with tissue.
"""

from __future__ import annotations

import io
from pathlib import Path

import h5py

from ips.errors import PatchError
from ips.files import atomic_write
from ips.images import Image
from ips.patches import ImagePatches
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
    try:
        with h5py.File(path, "r") as file:
            if file.attrs.get("format") != FORMAT:
                raise PatchError(f"{path} was not written by ips slides tissue: give one that was")
            geometry, found = dict(file["coords"].attrs), dict(file["indices"].attrs)
            patches = ImagePatches(
                image,
                patch_size=int(geometry["patch_size"]),
                stride=int(geometry["stride"]),
                downsample=float(geometry["patch_downsample"]),
                edge=geometry["edge"],
            )
            tissue = Tissue(
                patches,
                file["indices"][:],
                level=int(found["level"]),
                threshold=int(found["threshold"]) if "threshold" in found else None,
                fluorescent=bool(found["fluorescent"]),
                min_share=float(found["min_share"]),
                reason=found.get("reason"),
            )
    except FileNotFoundError as error:
        raise PatchError(f"{path} does not exist: run ips slides tissue") from error
    except (OSError, KeyError, RuntimeError, ValueError) as error:
        raise PatchError(
            f"{path} is damaged ({error}): delete it and run ips slides tissue again"
        ) from error
    check_slide(image, geometry, path)
    return tissue


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
