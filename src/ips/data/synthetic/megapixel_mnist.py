"""Megapixel MNIST (Sect. 4.3): five digits among noise patterns on a large black image.

Three digits have the same class, two have other classes. An image is not stored but described by
a short layout, which depends only on the seed, the split, the epoch and the image index.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ips.data.regions import Region
from ips.data.seeded import SeededDataset, seeded_generator
from ips.data.split import SPLIT_NUMBERS, Split, check_split
from ips.data.synthetic.digits import CLASSES, DIGIT_SIDE, Digits, Numbers, Pixels, load_digits
from ips.data.synthetic.noise import NoiseStyle, draw_noise_bank
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


@dataclass(frozen=True, eq=False)
class Layout:
    """Content of one image; places are top-left corners as x, y."""

    digits: Numbers  # (5,) indices of the digit images, those of the majority class first
    digit_places: Coords  # (5, 2)
    noise: Numbers  # (n,) indices of the noise patterns
    noise_places: Coords  # (n, 2)


class SceneDataset(SeededDataset[tuple[ScenePatches, dict[str, Tensor]]], ABC):
    """Patches and labels of images that are described by layouts."""

    images: Pixels  # (m, 28, 28) images of digits
    classes: Numbers  # (m,) their classes
    noise_bank: Pixels  # noise patterns of the split
    grid: Grid

    @abstractmethod
    def layout(self, index: int) -> Layout:
        """Content of image ``index`` in the current epoch."""

    def __getitem__(self, index: int) -> tuple[ScenePatches, dict[str, Tensor]]:
        layout = self.layout(index)
        # Digits come last, so that they cover the noise.
        scene = ScenePatches(
            np.concatenate([self.noise_bank[layout.noise], self.images[layout.digits]]),
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

    def objects(self, index: int, task: str) -> list[Region]:
        """Regions of the five digits of image ``index``; noise is no object."""
        places = self.layout(index).digit_places.tolist()
        return [Region.box(x, y, x + DIGIT_SIDE, y + DIGIT_SIDE) for x, y in places]


class MegapixelMNIST(SceneDataset):
    """Images that are drawn on demand.

    Args:
        side: side of an image in pixels; 1,500 in the paper, 1,000 to 10,000 for scaling.
        count: number of images; 5,000 for training and 1,000 for testing in the paper.
        split: split that the digits are taken from.
        hold_out: keep a tenth of the training digits for validation images.
        seed: random seed of the layouts and the noise.
        noise: number of noise patterns; one per 30 px of the side by default.
        noise_style: ``lines`` as published, or ``strokes``, which are harder to tell from digits.
        patch_size: side of a patch in pixels; 50 in the paper.
        stride: distance between patches; 50 in the paper, 25 for overlapping patches.
        edge: whether to drop, pad or fit patches that cross the border of the image.
        digits: the digits, or a folder with MNIST's IDX files; 5,000 embedded ones by default.
        fresh: whether the images change from epoch to epoch.
    """

    def __init__(
        self,
        side: int = 1000,
        *,
        count: int = 2000,
        split: Split = "train",
        hold_out: bool = False,
        seed: int = 0,
        noise: int | None = None,
        noise_style: NoiseStyle = "lines",
        patch_size: int = 50,
        stride: int = 50,
        edge: Edge = "drop",
        digits: Digits | Path | None = None,
        fresh: bool = False,
    ) -> None:
        if side < SMALLEST_SIDE:
            raise DataError(
                f"side {side} leaves no room for {DIGITS} digits of {DIGIT_SIDE} px: "
                f"take at least {SMALLEST_SIDE}"
            )
        if noise is not None and noise < 0:
            raise DataError(f"noise {noise} is negative: take 0 or more patterns")
        source = digits if isinstance(digits, Digits) else load_digits(digits)
        self._pools = _by_class(source, split, hold_out=hold_out)
        super().__init__(f"megapixel-mnist/{split}", count=count, seed=seed, fresh=fresh)
        self.images, self.classes = source.images, source.labels
        self.grid = Grid(side, side, patch=patch_size, stride=stride, edge=edge)
        self.side, self.split = side, split
        self.noise = round(side / PIXELS_PER_NOISE) if noise is None else noise
        rng = seeded_generator(seed, SPLIT_NUMBERS[split])
        self.noise_bank = draw_noise_bank(rng, style=noise_style, noise=self.noise)

    def layout(self, index: int) -> Layout:
        self.check_index(index)
        # Only uniform integers, which are the least likely to differ between versions of numpy.
        rng = seeded_generator(self.seed, SPLIT_NUMBERS[self.split], int(self._epoch), index)
        majority = int(rng.integers(CLASSES))
        same, others = self._pools[majority]
        return Layout(
            digits=np.concatenate([_pick(rng, same, SAME), _pick(rng, others, OTHERS)]),
            digit_places=_digit_places(rng, self.side),
            noise=_pick(rng, np.arange(len(self.noise_bank)), self.noise),
            noise_places=rng.integers(DIGIT_SIDE, self.side - DIGIT_SIDE, size=(self.noise, 2)),
        )


def _by_class(digits: Digits, split: Split, *, hold_out: bool) -> list[tuple[Numbers, Numbers]]:
    """For each class, the digits of the split with that class and with any other class."""
    check_split(split)
    held_out = np.arange(len(digits.train)) % 10 == 9
    part = digits.test if split == "test" else digits.train
    if split == "validation":
        part = part[held_out]
    elif split == "train" and hold_out:
        part = part[~held_out]
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
