"""Megapixel MNIST as written by the generator of the paper's authors (``make_mnist.py``).

    parameters.json        width, height and number of images
    train.npy, test.npy    one dict per image: "input" are the positions of the pixels that are not
                           black in the flattened image, and their values between 0 and 1;
                           "majority", "max", "top" and "multi" are the labels

The files are pickles. They are read without unpickling, see `ips.data.object_arrays`.
"""

from __future__ import annotations

import json
import operator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ips.data.object_arrays import read_objects
from ips.data.seeded import SeededDataset
from ips.data.split import Split, check_split
from ips.data.synthetic.digits import CLASSES
from ips.errors import DataError, PatchError, because, shown
from ips.images.array import WholeImage
from ips.images.image import Pixels
from ips.patches.image import Edge, Grid, ImagePatches

Positions = npt.NDArray[np.unsignedinteger[Any]]

_MAX_SIDE = 40_000  # such images take 1.6 GB in memory
_REMEDY = "make the data set again with make_mnist.py of the paper's authors"
_CLASS_LABELS = ("majority", "max", "top")


def is_authors_folder(folder: Path) -> bool:
    """Whether the generator of the paper's authors wrote this folder."""
    return (Path(folder) / "parameters.json").is_file()


class SparseImage(WholeImage):
    """A black image with some grey pixels, assembled at the first read.

    Args:
        positions: ``(n,)`` positions of the pixels in the flattened image.
        values: ``(n,)`` grey values, uint8.
    """

    def __init__(
        self,
        name: str,
        *,
        size: tuple[int, int],
        positions: Positions,
        values: Pixels,
    ) -> None:
        super().__init__(name, size=size, channels=1)
        self.positions, self.values = positions, values

    def _open(self) -> Pixels:
        width, height = self.dimensions
        pixels = np.zeros(height * width, dtype=np.uint8)
        pixels[self.positions] = self.values
        return pixels.reshape(height, width, 1)


class AuthorsMegapixelMNIST(SeededDataset[tuple[ImagePatches, dict[str, Tensor]]]):
    """One split of a folder that the generator of the paper's authors wrote.

    Args:
        folder: folder with ``parameters.json``.
        split: ``train`` or ``test``.
        patch_size, stride, edge: see `MegapixelMNIST`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        split: Split = "train",
        patch_size: int = 50,
        stride: int = 50,
        edge: Edge = "drop",
    ) -> None:
        check_split(split)
        parameters = Path(folder) / "parameters.json"
        self.size = _read_size(parameters)
        width, height = self.size
        try:
            Grid(width, height, patch=patch_size, stride=stride, edge=edge)  # report errors early
        except PatchError as error:
            raise PatchError(f"{parameters}: {error}") from None
        self.patch_size, self.stride, self.edge = patch_size, stride, edge
        path = Path(folder) / f"{split}.npy"
        try:
            items = read_objects(path)
            super().__init__(f"{Path(folder).name}/{split}", count=len(items))
            pixels = [_pixels(item, width * height) for item in items]
            self._labels = [_labels(item) for item in items]
        except FileNotFoundError:
            raise DataError(f"{path} is missing: {_REMEDY}") from None
        except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
            raise DataError(f"{path} cannot be read {because(error, remedy=_REMEDY)}") from None
        # Few large arrays instead of many small ones, which worker processes would copy.
        self._ends = np.cumsum([len(positions) for positions, _ in pixels])
        self._positions = np.concatenate([positions for positions, _ in pixels])
        self._values = np.concatenate([values for _, values in pixels])

    def __getitem__(self, index: int) -> tuple[ImagePatches, dict[str, Tensor]]:
        self.check_index(index)
        part = slice(self._ends[index - 1] if index else 0, self._ends[index])
        image = SparseImage(
            f"{self.name}/{index}",
            size=self.size,
            positions=self._positions[part],
            values=self._values[part],
        )
        patches = ImagePatches(
            image, patch_size=self.patch_size, stride=self.stride, edge=self.edge
        )
        return patches, dict(self._labels[index])


def _read_size(path: Path) -> tuple[int, int]:
    try:
        values = json.loads(path.read_text())
        width, height = values["width"], values["height"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{path} cannot be read {because(error, remedy=_REMEDY)}") from None
    sides = isinstance(width, int) and isinstance(height, int)
    if not sides or not 0 < min(width, height) <= max(width, height) <= _MAX_SIDE:
        raise DataError(f"{path}: width {shown(width)} and height {shown(height)}: {_REMEDY}")
    return width, height


def _pixels(item: Any, area: int) -> tuple[Positions, Pixels]:
    """Positions and grey values of the pixels of an image, checked."""
    if not isinstance(item, dict):
        raise ValueError("an image without labels for four tasks")
    (positions,), values = item["input"]
    if not isinstance(positions, np.ndarray) or positions.dtype != np.int64:
        raise ValueError("positions that are not 64-bit integers")
    if not isinstance(values, np.ndarray) or values.shape != positions.shape:
        raise ValueError("positions and values that do not match")
    if not ((positions >= 0) & (positions < area)).all():
        raise ValueError(f"a pixel outside of an image of {area:,} pixels")
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError("a value that is not between 0 and 1")
    grey: Pixels = np.rint(values * 255).astype(np.uint8)
    return positions.astype(np.min_scalar_type(area)), grey


def _labels(item: dict[str, Any]) -> dict[str, Tensor]:
    classes = {name: operator.index(item[name]) for name in _CLASS_LABELS}
    multi = np.asarray(item["multi"], np.float32)
    if not all(0 <= label < CLASSES for label in classes.values()):
        raise ValueError(f"a label that is not a digit: {classes}")
    if multi.shape != (CLASSES,) or not np.isin(multi, (0, 1)).all():
        raise ValueError(f"the label multi is not {CLASSES} zeros and ones")
    labels = {name: torch.tensor(label) for name, label in classes.items()}
    return labels | {"multi": torch.from_numpy(multi)}
