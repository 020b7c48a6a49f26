"""HDF5 files: features of every layout, patch coordinates and tissue."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
from PIL import Image as PILImage

from fuzz.family import Family, Reading, Seed
from fuzz.hdf5 import edit_hdf5
from fuzz.images import PATCH, digest, picture
from ips.images import open_image
from ips.patches import FeatureWriter, ImagePatches, open_patches
from ips.patches.tissue import tissue_patches
from ips.patches.tissue_file import load_tissue, save_tissue
from ips.slides.coords import Resolution, slide_patches

_N, _D = 12, 6
_FEATURES = np.random.default_rng(0).standard_normal((_N, _D)).astype(np.float32)
_CORNERS = np.stack(np.divmod(np.arange(_N), 4)[::-1], axis=1) * PATCH  # x, y
_MAX_ROWS = 64

_PLAIN = "HDF5 has no checksum of raw numbers"
_HEADER = "the names and attributes of these files have no checksum"


def read_features(path: Path) -> Reading:
    """Read features as training and prediction do."""
    group = "::tumor_001" if path.stem == "paper" else ""
    with open_patches(f"{path}{group}", slide_mpp=0.25) as bag:
        (part,) = bag.parts
        step = max(1, len(bag) // _MAX_ROWS)
        rows = bag.read(range(0, len(bag), step)).numpy()
        return Reading(
            (len(bag), bag.shape, bag.extent, part.mpp), (digest(rows), digest(bag.coords))
        )


def read_coords(path: Path) -> Reading:
    """Read the patches at stored coordinates as `ips slides features` does."""
    resolution = Resolution()
    with slide_patches(
        path.parent / "slide.png", resolution=resolution, coords=path.parent
    ) as found:
        step = max(1, len(found) // _MAX_ROWS)
        pixels = found.read(range(0, len(found), step)).numpy()
        return Reading(
            (len(found), found.patch_size, found.downsample), (digest(found.coords), digest(pixels))
        )


def read_tissue(path: Path) -> Reading:
    """Read a tissue file."""
    with open_image(path.parent / "slide.png") as image:
        tissue = load_tissue(path, image)
        patches = tissue.patches
        geometry = len(patches), patches.patch_size, patches.downsample, len(tissue.kept)
        rest = tissue.settings, tissue.threshold, tissue.fluorescent, tissue.reason, tissue.mask
        return Reading(geometry, (digest(tissue.kept), rest))


def _hdf5(write: Callable[[h5py.File], None]) -> bytes:
    out = io.BytesIO()
    with h5py.File(out, "w") as file:
        write(file)
    return out.getvalue()


def _clam(file: h5py.File) -> None:
    file.create_dataset("features", data=_FEATURES, chunks=(4, _D), maxshape=(None, _D))
    file.create_dataset("coords", data=_CORNERS.astype(np.int32), chunks=(4, 2))


def _trident(file: h5py.File) -> None:
    file.create_dataset("features", data=_FEATURES, chunks=(1, _D), maxshape=(None, _D))
    file["features"].attrs.update(name="slide", savetodir="None", encoder="uni_v1")
    file["coords"] = _CORNERS
    file["coords"].attrs.update(patch_size=PATCH, patch_size_level0=PATCH, overlap=0, name="slide")


def _stamp(file: h5py.File) -> None:
    file["feats"] = _FEATURES.astype(np.float16)
    file["coords"] = (_CORNERS * 0.25).astype(np.float32)
    file.attrs.update(stamp_version="2.2.0", unit="um", tile_size_um=4.0, tile_size_px=PATCH)


def _stamp_legacy(file: h5py.File) -> None:
    file["feats"] = _FEATURES.astype(np.float16)
    file["coords"] = _CORNERS // PATCH * 224


def _paper(file: h5py.File) -> None:
    for label, slide in enumerate(("normal_001", "tumor_001")):
        group = file.create_group(slide)
        group.create_dataset("img", data=_FEATURES, compression="gzip")
        group.create_dataset("pos", data=np.arange(_N) * 3, compression="gzip")
        group.attrs["label"] = np.int64(label)


def _ours(folder: Path) -> bytes:
    path = folder / "ours.h5"
    with FeatureWriter(path, patch_size=PATCH, extent=PATCH, mpp=0.25, encoder="thin") as writer:
        writer.append(_FEATURES, _CORNERS)
    return path.read_bytes()


def _tissue(folder: Path, slide: bytes) -> bytes:
    (folder / "slide.png").write_bytes(slide)
    with open_image(folder / "slide.png") as image:
        save_tissue(folder / "slide.h5", tissue_patches(ImagePatches(image, patch_size=PATCH)))
    return (folder / "slide.h5").read_bytes()


def _clam_coords(file: h5py.File) -> None:
    file["coords"] = _CORNERS.astype(np.int32)
    file["coords"].attrs.update(patch_size=PATCH, patch_level=0, name="slide")


def _trident_coords(file: h5py.File) -> None:
    file["coords"] = _CORNERS
    file["coords"].attrs.update(
        patch_size=PATCH, patch_size_level0=PATCH, level0_width=75, level0_height=66, overlap=0
    )


def families() -> list[Family]:
    """All families of HDF5 files."""
    out = io.BytesIO()
    pixels = picture()
    pixels[:, 40:] = 250  # glass
    PILImage.fromarray(pixels).save(out, "png")
    beside = {"slide.png": out.getvalue()}
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        ours, tissue = _ours(Path(folder)), _tissue(Path(folder), beside["slide.png"])
    bags = {
        "ours": ours,
        "clam": _hdf5(_clam),
        "trident": _hdf5(_trident),
        "stamp": _hdf5(_stamp),
        "stamp_legacy": _hdf5(_stamp_legacy),
        "paper": _hdf5(_paper),
    }
    coords = {"ours": tissue, "clam": _hdf5(_clam_coords), "trident": _hdf5(_trident_coords)}
    return [
        *(
            Family(
                f"features-{name.replace('_', '-')}",
                (Seed(name, f"{name}.h5", data, read_features),),
                edit=edit_hdf5,
                values=_PLAIN,
                geometry=_HEADER,
            )
            for name, data in bags.items()
        ),
        Family(
            "coords",
            tuple(
                Seed(name, "slide.h5", data, read_coords, beside) for name, data in coords.items()
            ),
            edit=edit_hdf5,
            values=_PLAIN,
            geometry=_HEADER,
        ),
        Family(
            "tissue",
            (Seed("ours", "slide.h5", tissue, read_tissue, beside),),
            edit=edit_hdf5,
            values=_PLAIN,
            geometry=_HEADER,
        ),
    ]
