"""Open HDF5 files that anybody may have written, and read their arrays and attributes safely.

A link or an array in an HDF5 file may point to any other file of this computer, and an array may
claim any size without storing a byte. Such files are refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from ips.errors import PatchError, because, shown
from ips.remote import local_file

# Errors of h5py about damaged bytes, which can fail anywhere: names that are not UTF-8, unknown
# number formats, attributes of impossible sizes.
_DAMAGED = (
    *(OSError, ArithmeticError, AttributeError, LookupError, MemoryError),
    *(RuntimeError, TypeError, ValueError),
)

# An array may be compressed this much; more only if nothing is stored for most of it.
_RATIO = 2000

# Coordinates and sizes are below this: float64 skips whole pixels beyond it.
_LIMIT = 2.0**53


def open_file(path: Path, *, what: str, remedy: str, **options: Any) -> h5py.File:
    """Open ``path`` for reading; ``what`` and ``remedy`` are for the message if that fails."""
    with reading(path, what=what, remedy=remedy), local_file(path) as file:
        return h5py.File(file, "r", **options)


@contextmanager
def opened(path: Path, *, what: str, remedy: str) -> Iterator[h5py.File]:
    """Open ``path`` for the block; every error of HDF5 in it is one sentence."""
    with reading(path, what=what, remedy=remedy), open_file(path, what=what, remedy=remedy) as file:
        yield file


@contextmanager
def reading(path: Path, *, what: str, remedy: str) -> Iterator[None]:
    """Turn every error of HDF5 in the block into one sentence."""
    try:
        yield
    except _DAMAGED as error:
        reason = because(error, remedy=remedy)
        raise PatchError(f"{path}: cannot be read as {what} {reason}") from error


def member(group: h5py.Group, key: str) -> h5py.Group | h5py.Dataset | None:
    """The array or group ``key`` of ``group`` if it exists and is stored in this very file."""
    link = group.get(key, getlink=True)
    if link is None:
        return None
    if not isinstance(link, h5py.HardLink):
        target = shown(getattr(link, "filename", link.path), quote=False)
        raise PatchError(
            f"{_file_name(group)}: {shown(key, quote=False)} is a link to {target}, and "
            "links are not followed: copy the array into the file"
        )
    item = group.get(key)
    if isinstance(item, h5py.Dataset):
        _check_storage(item)
    return item if isinstance(item, h5py.Dataset | h5py.Group) else None


def attributes(*owners: h5py.Group | h5py.Dataset) -> dict[str, Any]:
    """Attributes as plain numbers, strings and lists; TRIDENT writes None as a string."""
    return {key: _plain(owner.attrs[key]) for owner in owners for key in owner.attrs}


def number(values: dict[str, Any], key: str, *, name: str, zero: bool = False) -> float | None:
    """The attribute ``key``, a number above 0 (or 0 if ``zero``); None if it is missing."""
    value = values.get(key)
    if value is None:
        return None
    if isinstance(value, list) and len(value) == 1:  # MATLAB and R write numbers as arrays
        value = value[0]
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    if not numeric or not (0 < value < _LIMIT or (zero and value == 0)):  # false for NaN
        raise PatchError(
            f"{name}: its attribute {key} is {shown(value)}, expected a positive number: make the "
            "file again"
        )
    return float(value)


def required_number(values: dict[str, Any], key: str, *, name: str, zero: bool = False) -> float:
    """Like ``number`` for an attribute that must not be missing."""
    value = number(values, key, name=name, zero=zero)
    if value is None:
        raise PatchError(f"{name}: it has no attribute {key}: make the file again")
    return value


def text(values: dict[str, Any], key: str, *, name: str) -> str | None:
    """The attribute ``key``, a string; None if it is missing."""
    value = values.get(key)
    if value is not None and not isinstance(value, str):
        raise PatchError(
            f"{name}: its attribute {key} is {shown(value)}, expected a text: make the file again"
        )
    return value


def read_coords(array: h5py.Dataset, *, name: str, scale: float = 1.0) -> npt.NDArray[np.int64]:
    """All coordinates of an array, times ``scale``, rounded; raise if one is not finite."""
    if array.dtype.kind not in "iuf":
        raise PatchError(
            f"{name}: {array.name} is {array.dtype}, expected numbers: make the file again"
        )
    coords = np.asarray(array[()]).astype(np.float64) * scale
    sound = np.abs(coords) < _LIMIT  # false for NaN
    if not sound.all():
        raise PatchError(
            f"{name}: {array.name} contains {coords[~sound].flat[0]:g}, which is not a coordinate: "
            "make the file again"
        )
    return np.rint(coords).astype(np.int64)


def _check_storage(array: h5py.Dataset) -> None:
    """Raise if the values of an array are in another file, or are not stored at all."""
    name, settings = f"{_file_name(array)}: {array.name}", array.id.get_create_plist()
    if array.is_virtual or settings.get_external_count():
        raise PatchError(
            f"{name} is stored in another file, which is not read: copy the array into the file"
        )
    if array.shape is None:  # an empty dataspace
        raise PatchError(f"{name} has no shape: make the file again")
    declared = math.prod(array.shape) * array.dtype.itemsize
    stored = min(array.id.get_storage_size(), array.file.id.get_filesize())
    if declared > stored * (_RATIO if settings.get_nfilters() else 1):
        raise PatchError(
            f"{name} has the shape {array.shape}, but only {stored:,} bytes are stored: the file "
            "is incomplete, copy or make it again"
        )


def _file_name(item: h5py.Group | h5py.Dataset) -> str:
    return Path(item.file.filename).name


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, h5py.Empty):
        return None
    if isinstance(value, str):  # bytes that are not UTF-8 are surrogates here
        value = value.encode(errors="surrogateescape")
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return None if value == "None" else value
