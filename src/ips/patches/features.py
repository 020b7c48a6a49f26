"""A feature file as a bag of patches that is read row by row.

Files of CLAM, TRIDENT, STAMP, the authors of the paper and ``FeatureWriter`` are supported; see
``layouts``. Opening a file reads only names and shapes, and ``read`` only the requested rows.
Letters: N patches of an image, D features, k requested patches.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ips.errors import PatchError
from ips.files import is_file, split_address
from ips.images import Image, open_image
from ips.patches import hdf5, layouts
from ips.patches.coords_file import check_slide
from ips.patches.slide_finder import SlideFinder
from ips.patches.source import Coords, Indices, Part, PatchSource, as_index
from ips.patches.thumbnail import shrink_image

# One lock for all files costs nothing, because HDF5 serialises its calls anyway. It is held during
# a fork, so that no child starts with the library in the middle of a read.
_hdf5_lock = threading.Lock()
if sys.platform != "win32":
    os.register_at_fork(
        before=_hdf5_lock.acquire,
        after_in_parent=_hdf5_lock.release,
        after_in_child=_hdf5_lock.release,
    )

# Bytes of cached chunks. Neighbouring rows lie in chunks of 6 MB if h5py chunks 100,000 x 2,048
# floats by itself; with less, a compressed file would be decompressed again for every read.
_CHUNK_CACHE = 16 * 2**20

_WHAT, _REMEDY = "a feature file", "it is damaged or incomplete, copy or extract it again"
_MAX_SIDE = 2**20  # of a patch in full-resolution pixels

# Rows read at a time: bounds the memory beyond the requested rows.
_SLICE_ROWS = 1024


class FeatureBag(PatchSource):
    """The features of one image in an HDF5 file: a ``PatchSource`` of shape ``(D,)``.

    The constructor checks the file and closes it again. The first ``read`` opens it, once per
    process, and it stays open until ``close``.

    Args:
        path: feature file.
        group: group of the slide in a file of the paper's authors. Their ``pos`` is a sequence
            number without a grid, so ``coords`` are ``(pos, 0)`` and ``extent`` is None.
        mpp: micrometres per full-resolution pixel of the slide. Files with coordinates in
            micrometres (STAMP) need it for ``coords``, but not for their features.
    """

    def __init__(
        self, path: str | Path, *, group: str | None = None, mpp: float | None = None
    ) -> None:
        self.path, self.group = Path(path), group
        self.name = self.path.name if group is None else f"{self.path.name}::{group}"
        if mpp is not None and not (math.isfinite(mpp) and mpp > 0):
            raise PatchError(f"{self.name}: mpp={mpp}, expected micrometres per pixel above 0")
        if not is_file(self.path):
            raise PatchError(f"{self.path}: no such feature file: check the path")
        with _hdf5_lock, hdf5.opened(self.path, what=_WHAT, remedy=_REMEDY) as file:
            self.layout = layouts.inspect(file, group=group, name=self.name)
        self.attributes = self.layout.attributes  # encoder, patch size and so on
        self.mpp = mpp or hdf5.number(self.attributes, "mpp", name=self.name)
        self.shape = (self.layout.width,)
        self.slide: Image | None = None
        self.extent = self._checked_side(self._stored_side())
        self._file: h5py.File | None = None
        self._process = -1

    def _stored_side(self) -> float | None:
        """Side of a patch in full-resolution pixels as the file states it."""
        side = self.layout.side
        if side is not None and self.layout.microns is not None:
            return None if self.mpp is None else side / self.mpp
        return side

    def _checked_side(self, side: float | None) -> int | None:
        if side is not None and not 0.5 <= side < _MAX_SIDE:
            raise PatchError(
                f"{self.name}: its patches would have a side of {side:g} px: check the size and "
                "resolution in its attributes, or extract it again"
            )
        return None if side is None else round(side)

    def find_slide(self, slides: SlideFinder) -> Path | None:
        """The file of the slide; None if it is not found."""
        stored = hdf5.text(self.attributes, "slide", name=self.name)
        return slides.find(
            self.path if self.group is None else f"{self.path}::{self.group}", stored
        )

    def on_slide(self, slides: SlideFinder) -> FeatureBag:
        """The features in front of their slide; patches outside of it are an error."""
        if self.layout.kind == "ips-paper":
            if slides.folder is not None:
                raise PatchError(
                    f"{self.name}: it numbers its patches without saying where they are, so they "
                    "cannot be shown on a slide: leave out --slides"
                )
            return self
        path, bag = self.find_slide(slides), copy(self)
        if path is not None:
            bag.slide = open_image(path, white=slides.white)
            check_slide(bag.slide, self.attributes, self.path)
            bag.mpp = self.mpp or (bag.slide.mpp and sum(bag.slide.mpp) / 2)
        stored, given = bag._stored_side(), slides.side(self.name, bag.slide, bag.mpp)
        if stored is not None and given is not None and round(stored) != round(given):
            raise PatchError(
                f"{self.name}: its patches have a side of {stored:g} px of the slide, but by "
                f"--patch-size {given:g}: leave out --patch-size"
            )
        bag.extent = bag._checked_side(stored or given)
        if bag.slide is not None and (bag.coords >= bag.slide.dimensions).any():
            x, y = bag.coords.max(axis=0).tolist()
            width, height = bag.slide.dimensions
            raise PatchError(
                f"{self.name}: it has patches at up to {x}, {y}, but {bag.slide.name} has only "
                f"{width} x {height} px: that is another slide: name the right one with --slides"
            )
        return bag

    @property
    def parts(self) -> tuple[Part, ...]:
        """The image that the features were extracted from."""
        (part,) = super().parts
        if self.slide is None:
            return (replace(part, mpp=None if self.mpp is None else (self.mpp, self.mpp)),)
        return (
            replace(
                part,
                area=self.slide.bounds,
                size=self.slide.dimensions,
                mpp=self.slide.mpp or (self.mpp and (self.mpp, self.mpp)) or None,
                thumbnail=partial(shrink_image, self.slide),
                picture=self.slide,
            ),
        )

    def __len__(self) -> int:
        return self.layout.count

    def read(self, indices: Indices) -> Tensor:
        """Return only these rows, in this order: ``(k, D)`` in the precision of the file."""
        index = as_index(indices, len(self), self.name).numpy()
        wanted, back = np.unique(index, return_inverse=True)
        with self._array(self.layout.features) as features:
            rows = read_rows(features, wanted)  # (unique k, D)
        in_order = len(wanted) == len(index) and bool((wanted == index).all())
        return torch.from_numpy(rows if in_order else rows[back])  # (k, D)

    def check(self) -> None:
        """Raise if the file is damaged or a feature is not finite; reads the whole file."""
        super().check()
        for start in range(0, len(self), _SLICE_ROWS):
            rows = self.read(np.arange(start, min(start + _SLICE_ROWS, len(self))))  # (k, D)
            if not bool((finite := rows.isfinite().all(dim=1)).all()):
                row = start + int((~finite).int().argmax())
                raise PatchError(
                    f"{self.name}: the features of patch {row} are not finite: extract it again"
                )

    def close(self) -> None:
        """Close the files; a later read opens them again."""
        if self.slide is not None:
            self.slide.close()
        with _hdf5_lock:
            if self._file is not None and self._process == os.getpid():
                self._file.close()
            self._file = None  # a handle from before a fork belongs to the parent

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
            coords = hdf5.read_coords(array, name=self.name, scale=scale)
        if coords.ndim == 1:
            coords = np.stack([coords, np.zeros_like(coords)], axis=1)
        return coords.reshape(-1, 2)  # (N, 2)

    @contextmanager
    def _array(self, key: str) -> Iterator[h5py.Dataset]:
        """The array ``key``, locked until the block ends."""
        with _hdf5_lock:
            if self._file is None or self._process != os.getpid():
                self._file = None  # drop a handle from before a fork
                self._file = hdf5.open_file(
                    self.path, what=_WHAT, remedy=_REMEDY, rdcc_nbytes=_CHUNK_CACHE
                )
                self._process = os.getpid()
            with hdf5.reading(self.path, what=_WHAT, remedy=_REMEDY):
                yield self._file[key]

    def __getstate__(self) -> dict[str, Any]:
        state = {key: value for key, value in self.__dict__.items() if key != "coords"}
        return state | {"_file": None, "_process": -1}


def open_features(
    path: str | Path, *, group: str | None = None, mpp: float | None = None
) -> FeatureBag:
    """Open a feature file of any supported tool: ``slide.h5``, or ``train.h5::normal_001``."""
    if group is None:
        path, group = split_address(path)
    return FeatureBag(path, group=group, mpp=mpp)


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
        raise PatchError("there is no feature file: check the folder")
    return first.shape[0]


def read_rows(array: h5py.Dataset, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Read ``rows``, ascending and unique, of an ``(N, D)`` or ``(1, N, D)`` array.

    Rows of one chunk or of neighbouring chunks are read as one slice, because HDF5 reads or
    decompresses a chunk as a whole anyway. Chunks without a requested row are not read.
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
            if len(run) == stop - start:  # without gaps: read into place
                array.read_direct(out, here, np.s_[done : done + len(run)])
            else:
                out[done : done + len(run)] = array[here][run - start]
            done += len(run)
    return out
