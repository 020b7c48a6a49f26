"""Write features row by row to an HDF5 file that CLAM and TRIDENT can read too.

The arrays have the names and units of CLAM and TRIDENT. ``coords`` has the attributes of TRIDENT
that say how large a patch is, and in TRIDENT's own layout all of them.
Letters: D features, k patches appended at a time.
"""

from __future__ import annotations

import io
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, Self

import h5py
import numpy as np
import numpy.typing as npt
from torch import Tensor

from ips.errors import PatchError
from ips.files import atomic_path
from ips.patches.layouts import FORMAT, VERSION
from ips.patches.source import Coords
from ips.remote import address

# As in CLAM: one row is cheap to read, and so are all in a row.
_CHUNK_ROWS = 32

FileLayout = Literal["ips", "trident"]


class FeatureWriter:
    """Write the features of one image atomically, holding only the appended rows in memory.

    Use it as a context manager, and call `append` for each batch.

    Args:
        path: file to write; a missing folder is created.
        patch_size: side of a patch in pixels, as the encoder received it.
        extent: side of a patch in full-resolution pixels.
        level: pyramid level that the pixels were read from.
        mpp: micrometres per full-resolution pixel, if known.
        magnification: of the full resolution, if known.
        size: width and height of the image in full-resolution pixels, if known.
        slide: file of the image, if known; its absolute path is stored.
        encoder: name of the network that computed the features.
        dtype: precision of the file; ``float16`` halves its size.
        layout: ``trident`` adds all attributes that TRIDENT writes, for tools that look for them.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        patch_size: int,
        extent: int,
        level: int = 0,
        mpp: float | None = None,
        magnification: float | None = None,
        size: tuple[int, int] | None = None,
        slide: Path | None = None,
        encoder: str = "unknown",
        dtype: Literal["float16", "float32"] = "float16",
        layout: FileLayout = "ips",
    ) -> None:
        self.path, self.layout = Path(path), layout
        self.dtype = np.dtype(dtype)
        self.count = 0
        self._geometry: dict[str, int | float | str] = {
            "patch_size": patch_size,
            "patch_size_level0": extent,
            "level": level,
            "unit": "px",
        }
        if mpp is not None:
            self._geometry["mpp"] = mpp
        if size is not None:
            self._geometry |= {"level0_width": size[0], "level0_height": size[1]}
        if slide is not None:  # HDF5 has no names that are not UTF-8
            self._geometry["slide"] = (
                (address(slide) or str(slide.absolute())).encode(errors="replace").decode()
            )
        self._features: dict[str, str] = {"encoder": encoder}
        if layout == "trident":
            finest = magnification or (10 / mpp if mpp else None)
            self._add_trident(finest, finest and finest * patch_size / extent)
        self._open: tuple[h5py.File, _Disk] | None = None
        self._stack = ExitStack()

    def _add_trident(self, finest: float | None, read: float | None) -> None:
        """Add the other attributes of TRIDENT, which writes an unknown magnification as "None"."""
        names = {"name": self.path.stem, "savetodir": str(self.path.parent)}
        names = {key: name.encode(errors="replace").decode() for key, name in names.items()}
        self._features |= names
        self._geometry |= names
        self._geometry |= {
            "level0_magnification": round(finest) if finest else "None",
            "target_magnification": round(read) if read else "None",
            "overlap": 0,
        }

    def __enter__(self) -> Self:
        with ExitStack() as stack:  # undoes what was done if a step fails
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                disk = _Disk(stack.enter_context(atomic_path(self.path)), "x+")
            except OSError as error:
                raise self._failure(error) from error
            stack.enter_context(disk)
            stack.push(self._check)
            self._open = stack.enter_context(h5py.File(disk, "w")), disk
            self._stack = stack.pop_all()
        return self

    def append(self, features: Tensor | npt.NDArray[np.floating], coords: Coords) -> None:
        """Append ``(k, D)`` features with ``(k, 2)`` top-left corners in full-resolution pixels."""
        if self._open is None:
            raise ValueError("append inside a with block: with FeatureWriter(...) as writer")
        file, disk = self._open
        rows = features.detach().cpu().float().numpy() if isinstance(features, Tensor) else features
        places = np.asarray(coords)
        if rows.ndim != 2 or places.shape != (len(rows), 2):
            raise PatchError(
                f"{self.path.name}: features {rows.shape} with coordinates {places.shape}, "
                f"expected (k, D) with (k, 2)"
            )
        with np.errstate(over="ignore"):  # Overflows are reported below, with their value.
            stored = rows.astype(self.dtype)
        if not np.isfinite(stored).all():
            worst = float(rows[~np.isfinite(stored)][0])
            raise PatchError(
                f"{self.path.name}: feature value {worst} cannot be stored as {self.dtype}: "
                f"write float32, or check the encoder if it is not a number"
            )
        if "features" not in file:
            self._create(file, width=rows.shape[1])
        self._extend(file["features"], stored)
        self._extend(file["coords"], places.astype(np.int64))
        if disk.error is not None:
            raise self._failure(disk.error)
        self.count += len(rows)

    def __exit__(self, *error: Any) -> None:
        try:
            self._stack.__exit__(*error)
        except OSError as failure:  # some file systems report a full disk only when syncing
            raise self._failure(failure) from failure

    def _check(self, kind: type[BaseException] | None, *error: object) -> None:
        """Raise after the HDF5 file was closed and before it gets its name, if it is not whole."""
        assert self._open is not None
        (_, disk), self._open = self._open, None
        if kind is None and not self.count:
            raise PatchError(
                f"{self.path.name}: no patches to write: check the tissue filter, or leave the "
                f"image out"
            )
        if kind is None and disk.error is not None:
            raise self._failure(disk.error)

    def _create(self, file: h5py.File, *, width: int) -> None:
        if self.layout == "ips":
            file.attrs.update(format=FORMAT, version=VERSION)
        features = file.create_dataset(
            "features",
            shape=(0, width),
            maxshape=(None, width),
            chunks=(_CHUNK_ROWS, width),
            dtype=self.dtype,
        )
        features.attrs.update(self._features)
        coords = file.create_dataset(
            "coords", shape=(0, 2), maxshape=(None, 2), chunks=(1024, 2), dtype=np.int64
        )
        coords.attrs.update(self._geometry)

    def _extend(self, array: h5py.Dataset, rows: npt.NDArray[np.generic]) -> None:
        if rows.shape[1] != array.shape[1]:
            raise PatchError(
                f"{self.path.name}: {rows.shape[1]} features per patch after "
                f"{array.shape[1]}: one file holds one encoder's features"
            )
        array.resize(self.count + len(rows), axis=0)
        array[self.count :] = rows

    def _failure(self, error: Exception) -> PatchError:
        return PatchError(
            f"{self.path}: cannot be written ({error}): check the free space and the rights of "
            f"the folder; no incomplete file is left"
        )


class _Disk(io.FileIO):
    """A file that HDF5 can always write to; the first real error is kept in ``error``.

    h5py ignores errors while it closes arrays, and HDF5 may crash when a file is closed after an
    error, for example on a full disk.
    """

    error: OSError | None = None

    def write(self, data: Any) -> int:
        rest = memoryview(data).cast("B")
        size = len(rest)
        try:
            while rest:
                rest = rest[super().write(rest) :]
        except OSError as error:
            self.error = self.error or error
        return size

    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size)
        except OSError as error:
            self.error = self.error or error
            return size or 0
