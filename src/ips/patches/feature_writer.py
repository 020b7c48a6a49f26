"""Features written row by row into an HDF5 file that this and other tools read.

The arrays have the names that CLAM and TRIDENT look for, coordinates are level-0 pixels as theirs
are, and what TRIDENT notes on ``coords`` is there too. A file appears under its name only when it
is whole: it grows beside the target under another name and is renamed at the end.
Letters: D features, k patches added at a time.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self
from uuid import uuid4

import h5py
import numpy as np
import numpy.typing as npt
from torch import Tensor

from ips.errors import PatchError
from ips.patches.layouts import FORMAT, VERSION
from ips.patches.source import Coords

# CLAM's: few enough for one row not to cost much, enough for a stream not to seek.
_CHUNK_ROWS = 32


class FeatureWriter:
    """Writes one bag, never holding more of it than what is appended at a time.

    >>> with FeatureWriter("slide.h5", patch_size=256, extent=512) as writer:  # doctest: +SKIP
    ...     writer.append(features, coords)

    Args:
        path: the file to make; its folder is made where it is missing.
        patch_size: side of a patch in pixels, as the encoder saw it.
        extent: side of a patch in full-resolution pixels.
        level: of the pyramid the pixels came from.
        mpp: micrometres per full-resolution pixel, where known.
        encoder: name of the network that made the features.
        dtype: ``float16`` halves the file.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        patch_size: int,
        extent: int,
        level: int = 0,
        mpp: float | None = None,
        encoder: str = "unknown",
        dtype: Literal["float16", "float32"] = "float16",
    ) -> None:
        self.path = Path(path)
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
        self._encoder = encoder
        self._part = self.path.with_name(f".{self.path.name}.{uuid4().hex[:8]}.part")
        self._disk: _Disk | None = None
        self._file: h5py.File | None = None

    def __enter__(self) -> Self:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._disk = _Disk(self._part, "x+")
        except OSError as error:
            raise self._failure(error) from error
        self._file = h5py.File(self._disk, "w")
        return self

    def append(self, features: Tensor | npt.NDArray[np.floating], coords: Coords) -> None:
        """Add ``(k, D)`` features at ``(k, 2)`` top-left corners in full-resolution pixels."""
        if self._file is None or self._disk is None:
            raise ValueError("append inside a with block: with FeatureWriter(...) as writer")
        rows = features.detach().cpu().float().numpy() if isinstance(features, Tensor) else features
        places = np.asarray(coords)
        if rows.ndim != 2 or places.shape != (len(rows), 2):
            raise PatchError(
                f"{self.path.name}: features {rows.shape} with coordinates {places.shape}, "
                f"expected (k, D) with (k, 2)"
            )
        with np.errstate(over="ignore"):  # What overflows is reported below, by value.
            stored = rows.astype(self.dtype)
        if not np.isfinite(stored).all():
            worst = float(rows[~np.isfinite(stored)][0])
            raise PatchError(
                f"{self.path.name}: feature value {worst} cannot be stored as {self.dtype}: "
                f"write float32, or check the encoder if it is not a number"
            )
        if "features" not in self._file:
            self._create(self._file, width=rows.shape[1])
        self._extend(self._file["features"], stored)
        self._extend(self._file["coords"], places.astype(np.int64))
        if self._disk.error is not None:
            raise self._failure(self._disk.error)
        self.count += len(rows)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        file, disk = self._file, self._disk
        assert file is not None
        assert disk is not None
        self._file = self._disk = None
        try:
            file.close()
            if error is None:
                self._finish(disk)
        finally:
            disk.close()
            self._part.unlink(missing_ok=True)

    def _finish(self, disk: _Disk) -> None:
        if not self.count:
            raise PatchError(
                f"{self.path.name}: no patches to write: look at the tissue filter, or leave the "
                f"image out"
            )
        try:
            if disk.error is not None:
                raise disk.error
            os.fsync(disk.fileno())  # Some file systems notice only here that there is no room.
            disk.close()
            self._part.replace(self.path)
        except OSError as failure:
            raise self._failure(failure) from failure

    def _create(self, file: h5py.File, *, width: int) -> None:
        file.attrs.update(format=FORMAT, version=VERSION)
        features = file.create_dataset(
            "features",
            shape=(0, width),
            maxshape=(None, width),
            chunks=(_CHUNK_ROWS, width),
            dtype=self.dtype,
        )
        features.attrs["encoder"] = self._encoder
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
            f"the folder; nothing half-made was left"
        )


class _Disk(io.FileIO):
    """The file as HDF5 sees it: always writable; what went wrong first is kept in ``error``.

    HDF5 does not survive a full disk: h5py drops errors of arrays that it closes on the way, and
    the library may crash when the file is closed after one.
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
