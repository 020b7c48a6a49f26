"""A stored feature file as a bag of patches, read by rows, in the layouts of the field.

Features of CLAM, TRIDENT and STAMP, of the paper's authors and of ``FeatureWriter`` are read as
they are; ``layouts`` says how each is told apart. Nothing but names and shapes is read until rows
are asked for, and then only those.
Letters: N patches of an image, D features, k patches asked for.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ips.errors import PatchError
from ips.patches import layouts
from ips.patches.source import Coords, Indices, Part, PatchSource, as_index

# One lock for all files costs nothing: the HDF5 library itself does one call at a time. Held over
# a fork, so that no child starts with the library in the middle of a read.
_reading = threading.Lock()
if sys.platform != "win32":
    os.register_at_fork(
        before=_reading.acquire,
        after_in_parent=_reading.release,
        after_in_child=_reading.release,
    )

# Room for the chunks that rows next to each other lie in: 6 MB for 100,000 x 2,048 floats as h5py
# chunks them by itself. With less, a compressed file is decompressed anew for every read.
_CHUNK_CACHE = 16 * 2**20

# Rows read at a time: bounds what is held besides the rows asked for.
_SLICE_ROWS = 1024


class FeatureBag(PatchSource):
    """The features of one image in an HDF5 file: a ``PatchSource`` of shape ``(D,)``.

    The file is checked here and closed again; it is opened at the first ``read``, once per
    process, and stays open until ``close``.

    Args:
        path: the file.
        group: the slide, in a file of the paper authors' layout. Their ``pos`` is a running
            position without a grid, so ``coords`` are one row ``(pos, 0)`` and ``extent`` is None.
        mpp: micrometres per full-resolution pixel of the slide, needed for the ``coords`` of
            files that count in micrometres (STAMP); without it their features can still be read.
    """

    def __init__(
        self, path: str | Path, *, group: str | None = None, mpp: float | None = None
    ) -> None:
        self.path = Path(path)
        self.name = self.path.name if group is None else f"{self.path.name}::{group}"
        if mpp is not None and not (math.isfinite(mpp) and mpp > 0):
            raise PatchError(f"{self.name}: mpp={mpp}, expected micrometres per pixel above 0")
        with _reading, _opened(self.path) as file:
            self.layout = layouts.inspect(file, group=group, name=self.name)
        self.mpp: float | None = mpp or self.layout.attributes.get("mpp")
        self.shape = (self.layout.width,)
        side = self.layout.side
        if side is not None and self.layout.microns is not None:
            side = None if self.mpp is None else side / self.mpp
        self.extent = None if side is None else round(side)
        self._file: h5py.File | None = None
        self._process = -1

    @property
    def attributes(self) -> dict[str, Any]:
        """What the extracting tool noted in the file: encoder, patch size and so on."""
        return self.layout.attributes

    @property
    def label(self) -> int | None:
        """Class of the slide, in the paper authors' layout."""
        label = self.attributes.get("label") if self.layout.kind == "ips-paper" else None
        return None if label is None else int(label)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The image that the features were extracted from."""
        (part,) = super().parts
        return (replace(part, mpp=None if self.mpp is None else (self.mpp, self.mpp)),)

    def __len__(self) -> int:
        return self.layout.count

    def read(self, indices: Indices) -> Tensor:
        """Only these rows, in this order: ``(k, D)`` in the precision of the file."""
        index = as_index(indices, len(self), self.name).numpy()
        wanted, back = np.unique(index, return_inverse=True)
        with self._array(self.layout.features) as features:
            rows = read_rows(features, wanted)  # (unique k, D)
        in_order = len(wanted) == len(index) and bool((wanted == index).all())
        return torch.from_numpy(rows if in_order else rows[back])  # (k, D)

    def close(self) -> None:
        """Let the file go; a later read opens it again."""
        with _reading:
            if self._file is not None and self._process == os.getpid():
                self._file.close()
            self._file = None  # A handle from before a fork is the parent's to close.

    @cached_property
    def coords(self) -> Coords:
        """``(N, 2)`` top-left corners as x, y in full-resolution pixels."""
        scale = 1.0
        if self.layout.microns is not None:
            if self.mpp is None:
                raise PatchError(
                    f"{self.name}: its coordinates are in micrometres and the slide's resolution "
                    "is not in the file: set patches.slide_mpp, the micrometres per pixel of the "
                    "slide (mpp= in open_features)"
                )
            scale = self.layout.microns / self.mpp
        with self._array(self.layout.coords) as array:
            coords = np.asarray(array[()], dtype=np.float64)
        if coords.ndim == 1:
            coords = np.stack([coords, np.zeros_like(coords)], axis=1)  # (N, 2)
        return np.rint(coords.reshape(-1, 2) * scale).astype(np.int64)  # (N, 2)

    @contextmanager
    def _array(self, key: str) -> Iterator[h5py.Dataset]:
        """The array of that name, ours alone until the block ends."""
        with _reading:
            if self._file is None or self._process != os.getpid():
                self._file = None  # A handle from before a fork goes first: it is not ours.
                self._file, self._process = _open(self.path), os.getpid()
            try:
                yield self._file[key]
            except (OSError, RuntimeError, KeyError) as error:
                raise PatchError(
                    f"{self.name}: {key} cannot be read ({error}): the file is damaged or was "
                    f"replaced, copy or extract it again"
                ) from error

    def __getstate__(self) -> dict[str, Any]:
        state = {key: value for key, value in self.__dict__.items() if key != "coords"}
        return state | {"_file": None, "_process": -1}


def open_features(
    path: str | Path, *, group: str | None = None, mpp: float | None = None
) -> FeatureBag:
    """The bag of features in ``path``, whichever tool wrote it.

    >>> open_features("slide_017.h5", mpp=0.25)  # doctest: +SKIP
    >>> open_features("train.h5::normal_001")  # doctest: +SKIP
    """
    if group is None:
        path, group = split_address(path)
    return FeatureBag(path, group=group, mpp=mpp)


def split_address(path: str | Path) -> tuple[Path, str | None]:
    """File and group of ``file.h5::group``; a path without a group gives None.

    >>> split_address("train.h5::normal_001")[1]
    'normal_001'
    """
    file, _, group = str(path).partition("::")
    return Path(file), group or None


def groups(path: str | Path) -> list[str]:
    """The slides in a file of the paper authors' layout, one group each."""
    with _reading, _opened(Path(path)) as file:
        found = layouts.slides(file)
    if not found:
        raise PatchError(f"{Path(path).name}: no group with img and pos: it is one bag, open it")
    return found


def check_widths(sources: Iterable[PatchSource]) -> int:
    """Return the D that all these bags of features share; raise if they differ.

    Images among the sources are ignored.
    """
    first: PatchSource | None = None
    for bag in sources:
        if len(bag.shape) != 1:
            continue
        first = first or bag
        if bag.shape != first.shape:
            raise PatchError(
                f"{first.name} has {first.shape[0]} features per patch and {bag.name} has "
                f"{bag.shape[0]}: they come from different encoders, keep one per folder"
            )
    if first is None:
        raise PatchError("there is no feature file to take the width of: check the folder")
    return first.shape[0]


def read_rows(array: h5py.Dataset, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """``rows``, ascending and each once, of an ``(N, D)`` or ``(1, N, D)`` array.

    Rows of one chunk come in one slice, since HDF5 reads or decompresses the chunk as a whole
    anyway; so do those of neighbouring chunks. Chunks without a row asked for are not touched.
    """
    chunk = array.chunks[-2] if array.chunks else 1
    most = chunk * max(1, _SLICE_ROWS // chunk)
    apart, full = np.diff(rows // chunk) > 1, np.diff(rows // most) > 0
    out = np.empty((len(rows), array.shape[-1]), dtype=array.dtype.newbyteorder("="))
    done = 0
    for run in np.split(rows, np.flatnonzero(apart | full) + 1):
        if len(run):
            start, stop = int(run[0]), int(run[-1]) + 1
            here = np.s_[0, start:stop] if array.ndim == 3 else np.s_[start:stop]
            if len(run) == stop - start:  # all of them: straight to their place
                array.read_direct(out, here, np.s_[done : done + len(run)])
            else:
                out[done : done + len(run)] = array[here][run - start]
            done += len(run)
    return out


def _open(path: Path) -> h5py.File:
    if not path.is_file():
        raise PatchError(f"{path}: no such feature file: check the path")
    try:
        return h5py.File(path, "r", rdcc_nbytes=_CHUNK_CACHE)
    except OSError as error:
        raise PatchError(
            f"{path}: not an HDF5 file, or one that was cut short ({error}): copy or extract it "
            f"again"
        ) from error


@contextmanager
def _opened(path: Path) -> Iterator[h5py.File]:
    """``path`` for the length of a look at its names and shapes."""
    with _open(path) as file:
        try:
            yield file
        except (OSError, RuntimeError, KeyError) as error:
            raise PatchError(
                f"{path}: damaged inside ({error}): copy or extract it again"
            ) from error
