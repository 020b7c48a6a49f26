"""Megapixel MNIST (Sect. 4.3): five digits among noise patterns on a large black image.

Three digits have the same class, two have other classes. An image is not stored but described by
a short layout, which depends only on the seed, the split, the epoch and the image index.

A noise pattern consists of two straight strokes. A stroke is three small integers: its angle, its
distance from the centre of the cell and its grey value. Rendering uses integer arithmetic, so the
images are identical on every machine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ips.data.seeded import SeededDataset, seeded_generator
from ips.data.split import Split, check_split
from ips.data.synthetic.digits import CLASSES, DIGIT_SIDE, Digits, Numbers, Pixels, load_digits
from ips.data.synthetic.scene import ScenePatches
from ips.errors import DataError
from ips.patches.image import Edge, Grid
from ips.patches.source import Coords

TASKS: dict[str, tuple[Literal["multiclass", "multilabel"], int]] = {
    "majority": ("multiclass", CLASSES),
    "max": ("multiclass", CLASSES),
    "top": ("multiclass", CLASSES),
    "multi": ("multilabel", CLASSES),
}
"""Kind and number of classes of each task: the class of three digits, the largest digit, the
topmost digit, and all digits of the image."""

SAME, OTHERS = 3, 2  # number of digits of the majority class, and of other classes
DIGITS = SAME + OTHERS

# Room for four digits side by side, so that non-overlapping positions are found quickly.
SMALLEST_SIDE = 4 * DIGIT_SIDE

# In the paper, 33 patterns at 1,000 px, 50 at 1,500 px and 333 at 10,000 px.
PIXELS_PER_NOISE = 30

_ANGLES = 180  # in degrees
_SHIFTS = 13  # -6 to 6 px from the centre, so that a stroke crosses most of the cell
_GREY = 204, 256  # 0.8 to 1
_WIDTH = 2.5  # px, like a pen stroke in MNIST
_UNIT = 1024  # one pixel in fixed-point arithmetic

STROKE_STOP = (_ANGLES, _SHIFTS, _GREY[1])
"""Upper bounds (exclusive) of the three integers of a stroke."""

Strokes = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Layout:
    """Content of one image; places are top-left corners as x, y."""

    digits: Numbers  # (5,) indices of the digit images, those of the majority class first
    digit_places: Coords  # (5, 2)
    strokes: Strokes  # (n, 2, 3)
    noise_places: Coords  # (n, 2)


class SceneDataset(SeededDataset[tuple[ScenePatches, dict[str, Tensor]]], ABC):
    """Patches and labels of images that are described by layouts."""

    images: Pixels  # (m, 28, 28) images of digits
    classes: Numbers  # (m,) their classes
    grid: Grid

    @abstractmethod
    def layout(self, index: int) -> Layout:
        """Content of image ``index`` in the current epoch."""

    def __getitem__(self, index: int) -> tuple[ScenePatches, dict[str, Tensor]]:
        layout = self.layout(index)
        # Digits come last, so that they cover the noise.
        scene = ScenePatches(
            np.concatenate([render_strokes(layout.strokes), self.images[layout.digits]]),
            places=np.concatenate([layout.noise_places, layout.digit_places]),
            grid=self.grid,
            name=f"{self.name}/{index}",
        )
        classes = self.classes[layout.digits]  # (5,)
        counts = np.bincount(classes, minlength=CLASSES)
        labels = {
            "majority": torch.tensor(int(counts.argmax())),
            "max": torch.tensor(int(classes.max())),
            "top": torch.tensor(int(classes[layout.digit_places[:, 1].argmin()])),
            "multi": torch.from_numpy((counts > 0).astype(np.float32)),
        }
        return scene, labels


class MegapixelMNIST(SceneDataset):
    """Images that are drawn on demand.

    Args:
        side: side of an image in pixels; 1,500 in the paper, 1,000 to 10,000 for scaling.
        count: number of images; 5,000 for training and 1,000 for testing in the paper.
        split: split that the digits are taken from.
        seed: random seed of the layouts.
        noise: number of noise patterns; one per 30 px of the side by default.
        patch_size: side of a patch in pixels; 50 in the paper.
        stride: distance between patches; 50 in the paper, 25 for overlapping patches.
        edge: whether to drop or pad patches that cross the border of the image.
        digits: folder with MNIST's IDX files; the 5,000 embedded digits by default.
        fresh: whether the images change from epoch to epoch.
    """

    def __init__(
        self,
        side: int = 1000,
        *,
        count: int = 2000,
        split: Split = "train",
        seed: int = 0,
        noise: int | None = None,
        patch_size: int = 50,
        stride: int = 50,
        edge: Edge = "drop",
        digits: Path | None = None,
        fresh: bool = False,
    ) -> None:
        if side < SMALLEST_SIDE:
            raise DataError(
                f"side {side} leaves no room for {DIGITS} digits of {DIGIT_SIDE} px: "
                f"take at least {SMALLEST_SIDE}"
            )
        if noise is not None and noise < 0:
            raise DataError(f"noise {noise} is negative: take 0 or more patterns")
        source = load_digits(digits)
        self._pools = _by_class(source, split)
        super().__init__(f"megapixel-mnist/{split}", count=count, seed=seed, fresh=fresh)
        self.images, self.classes = source.images, source.labels
        self.grid = Grid(side, side, patch=patch_size, stride=stride, edge=edge)
        self.side, self.split = side, split
        self.noise = round(side / PIXELS_PER_NOISE) if noise is None else noise

    def layout(self, index: int) -> Layout:
        self.check_index(index)
        # Only uniform integers, which are the least likely to differ between versions of numpy.
        rng = seeded_generator(self.seed, int(self.split == "test"), int(self._epoch), index)
        majority = int(rng.integers(CLASSES))
        same, others = self._pools[majority]
        return Layout(
            digits=np.concatenate([_pick(rng, same, SAME), _pick(rng, others, OTHERS)]),
            digit_places=_digit_places(rng, self.side),
            strokes=draw_strokes(rng, self.noise),
            noise_places=rng.integers(
                DIGIT_SIDE, self.side - 2 * DIGIT_SIDE, size=(self.noise, 2), endpoint=True
            ),
        )


def _by_class(digits: Digits, split: Split) -> list[tuple[Numbers, Numbers]]:
    """For each class, the digits of the split with that class and with any other class."""
    check_split(split)
    part = digits.train if split == "train" else digits.test
    of_class = [digits.labels[part] == digit for digit in range(CLASSES)]
    for digit, chosen in enumerate(of_class):
        if not chosen.any():
            raise DataError(
                f"no digit {digit} among the {len(part)} {split} digits: "
                "use a folder with all of MNIST"
            )
    return [(part[chosen], part[~chosen]) for chosen in of_class]


def _pick(rng: np.random.Generator, pool: Numbers, count: int) -> Numbers:
    return pool[rng.integers(len(pool), size=count)]


def _digit_places(rng: np.random.Generator, side: int) -> Coords:
    """Random places without overlap and with a unique topmost digit."""
    pairs = np.triu_indices(DIGITS, k=1)
    while True:
        places = rng.integers(side - DIGIT_SIDE, size=(DIGITS, 2), endpoint=True)
        distance = np.abs(places[:, None] - places).max(axis=-1)  # (5, 5)
        heights = np.sort(places[:, 1])
        if (distance[pairs] >= DIGIT_SIDE).all() and heights[0] < heights[1]:
            return places


def draw_strokes(rng: np.random.Generator, count: int) -> Strokes:
    """Random strokes ``(count, 2, 3)``: two per cell, each with angle, shift and grey value."""
    size = (count, 2)
    angle = rng.integers(_ANGLES, size=size)
    shift = rng.integers(_SHIFTS, size=size)
    grey = rng.integers(*_GREY, size=size)
    return np.stack([angle, shift, grey], axis=-1).astype(np.uint8)


def render_strokes(strokes: Strokes) -> npt.NDArray[np.uint8]:
    """Render strokes ``(n, 2, 3)`` to cells ``(n, 28, 28)``; the lighter stroke is on top."""
    angle, shift, grey = np.moveaxis(strokes, -1, 0)  # (n, 2) each
    inked = _masks()[angle, shift]  # (n, 2, 28, 28)
    cells: npt.NDArray[np.uint8] = (inked * grey[..., None, None]).max(axis=1)  # (n, 28, 28)
    return cells


@lru_cache(maxsize=1)
def _masks() -> npt.NDArray[np.uint8]:
    """Masks of all possible strokes, ``(180, 13, 28, 28)``."""
    turn = np.deg2rad(np.arange(_ANGLES))
    across = np.rint(_UNIT * np.stack([np.cos(turn), np.sin(turn)])).astype(np.int64)  # (2, 180)
    # Twice the distance from the centre, which lies between two pixels.
    place = 2 * np.arange(DIGIT_SIDE) - (DIGIT_SIDE - 1)
    distance = across[0, :, None, None] * place + across[1, :, None, None] * place[:, None]
    shift = 2 * _UNIT * (np.arange(_SHIFTS) - _SHIFTS // 2)
    away = np.abs(distance[:, None] - shift[:, None, None])  # (180, 13, 28, 28)
    inked: npt.NDArray[np.uint8] = (away < _WIDTH * _UNIT).astype(np.uint8)
    return inked
