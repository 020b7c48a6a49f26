"""Megapixel MNIST (Sect. 4.3): five digits to find among noise in a large black image.

Three digits are of one class, two of others. An image is never stored: it is a short list of
what is where, and that list follows from the seed, the split, the epoch and the image's number
alone, whichever process asks for it and in whatever order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from ips.data.synthetic.digits import (
    CLASSES,
    DIGIT_SIDE,
    Digits,
    Numbers,
    Pixels,
    Split,
    load_digits,
)
from ips.data.synthetic.scene import ScenePatches
from ips.data.synthetic.strokes import Strokes, draw_strokes, render_strokes
from ips.errors import DataError
from ips.patches.grid import Edge, Grid
from ips.patches.source import Coords

TASKS: dict[str, tuple[Literal["multiclass", "multilabel"], int]] = {
    "majority": ("multiclass", CLASSES),
    "max": ("multiclass", CLASSES),
    "top": ("multiclass", CLASSES),
    "multi": ("multilabel", CLASSES),
}
"""Kind and number of classes of each label: the class of three digits, the largest digit, the
topmost digit, and which digits there are."""

SAME, OTHERS = 3, 2

# Room for four digits side by side: random places that do not overlap are still found quickly.
SMALLEST_SIDE = 4 * DIGIT_SIDE

# In the paper, 33 patterns at 1,000 px, 50 at 1,500 px and 333 at 10,000 px.
PIXELS_PER_NOISE = 30


@dataclass(frozen=True, eq=False)
class Layout:
    """What is where on one image; places are top-left corners as x, y.

    Args:
        digits: ``(5,)`` numbers of the digits' pictures, those of the majority first.
        digit_places: ``(5, 2)``.
        strokes: ``(n, 2, 3)``, see `ips.data.synthetic.strokes`.
        noise_places: ``(n, 2)``.
    """

    digits: Numbers
    digit_places: Coords
    strokes: Strokes
    noise_places: Coords


class Scenes(Dataset[tuple[ScenePatches, dict[str, Tensor]]], ABC):
    """Images of digits as a map data set; where a layout comes from is up to the subclass.

    Args:
        images: ``(m, 28, 28)`` pictures of digits.
        classes: ``(m,)`` the digits that they show.
        count: number of images.
        grid: size of the images and where their patches are.
        name: of the data set, for messages.
    """

    def __init__(
        self, images: Pixels, *, classes: Numbers, count: int, grid: Grid, name: str
    ) -> None:
        self.images = images
        self.classes = classes
        self.grid = grid
        self.name = name
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[ScenePatches, dict[str, Tensor]]:
        layout = self.layout(index)
        # Digits come last: they cover the noise below them.
        scene = ScenePatches(
            np.concatenate([render_strokes(layout.strokes), self.images[layout.digits]]),
            places=np.concatenate([layout.noise_places, layout.digit_places]),
            grid=self.grid,
            name=f"{self.name}/{index}",
        )
        return scene, labels_of(self.classes[layout.digits], places=layout.digit_places)

    @abstractmethod
    def layout(self, index: int) -> Layout:
        """What is where on image ``index``."""

    def set_epoch(self, epoch: int) -> None:
        """Tell which epoch begins: of no effect where the images are the same in every epoch."""

    def _check_index(self, index: int) -> None:
        # An IndexError, for it is what ends a loop over a sequence.
        if not 0 <= index < len(self):
            raise IndexError(f"{self.name}: there is no image {index}, only 0 to {len(self) - 1}")


class MegapixelMNIST(Scenes):
    """Images that are drawn when asked for, each the same every time.

    Args:
        side: of the image in pixels; 1,500 in the paper, 1,000 to 10,000 where it scales.
        count: number of images; 5,000 to train and 1,000 to test in the paper.
        split: whether digits are those for training or those for testing.
        seed: other images for another seed.
        noise: number of noise patterns; one per 30 px of the side where not given.
        patch_size: side of a patch in pixels; 50 in the paper.
        stride: from patch to patch; 50, and 25 for overlap, in the paper.
        edge: what happens to patches that reach beyond the image.
        digits: folder with MNIST's IDX files; the 5,000 embedded digits where not given.
        fresh: draw other images in each epoch that `set_epoch` announces.
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
                f"side {side} leaves no room for {SAME + OTHERS} digits of {DIGIT_SIDE} px: "
                f"take at least {SMALLEST_SIDE}"
            )
        if noise is not None and noise < 0:
            raise DataError(f"noise {noise} is negative: take 0 or more patterns")
        if count < 1:
            raise DataError(f"a data set of {count} images is empty: ask for at least 1")
        if seed < 0:
            raise DataError(f"seed {seed} is negative: take 0 or more")
        source = load_digits(digits)
        self._pools = _by_class(source, split)
        super().__init__(
            source.images,
            classes=source.labels,
            count=count,
            grid=Grid(side, side, patch=patch_size, stride=stride, edge=edge),
            name=f"megapixel-mnist/{split}",
        )
        self.side = side
        self.split = split
        self.seed = seed
        self.noise = round(side / PIXELS_PER_NOISE) if noise is None else noise
        self.fresh = fresh
        # In shared memory, so that workers that outlive an epoch hear of the next one.
        self._epoch = torch.zeros((), dtype=torch.int64)
        self._epoch.share_memory_()

    def set_epoch(self, epoch: int) -> None:
        """With ``fresh``, the images of this epoch from now on; otherwise of no effect."""
        if self.fresh:
            self._epoch.fill_(epoch)

    def layout(self, index: int) -> Layout:
        """What is where on image ``index`` in the current epoch."""
        self._check_index(index)
        key = (0 if self.split == "train" else 1, int(self._epoch), index)
        seeds = np.random.SeedSequence(self.seed, spawn_key=key)
        # Only uniform integers are drawn, the least likely to differ between versions of numpy.
        rng = np.random.Generator(np.random.PCG64(seeds))
        majority = int(rng.integers(CLASSES))
        same, others = self._pools[majority]
        return Layout(
            digits=np.concatenate([_pick(rng, same, SAME), _pick(rng, others, OTHERS)]),
            digit_places=_places_apart(rng, self.side),
            strokes=draw_strokes(rng, self.noise),
            noise_places=rng.integers(
                DIGIT_SIDE, self.side - 2 * DIGIT_SIDE, size=(self.noise, 2), endpoint=True
            ),
        )


def labels_of(classes: Numbers, *, places: Coords) -> dict[str, Tensor]:
    """The label of each of `TASKS`, for digits of ``classes (5,)`` at ``places (5, 2)``."""
    counts = np.bincount(classes, minlength=CLASSES)
    return {
        "majority": torch.tensor(int(counts.argmax())),
        "max": torch.tensor(int(classes.max())),
        "top": torch.tensor(int(classes[places[:, 1].argmin()])),
        "multi": torch.from_numpy((counts > 0).astype(np.float32)),
    }


def _by_class(digits: Digits, split: Split) -> list[tuple[Numbers, Numbers]]:
    """For each class, the split's digits of that class and of every other."""
    part = digits.part(split)
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


def _places_apart(rng: np.random.Generator, side: int) -> Coords:
    """Random places of which no two overlap, and one alone is topmost so that `top` is clear."""
    pairs = np.triu_indices(SAME + OTHERS, k=1)
    while True:
        places = rng.integers(side - DIGIT_SIDE, size=(SAME + OTHERS, 2), endpoint=True)
        distance = np.abs(places[:, None] - places).max(axis=-1)  # (5, 5)
        heights = np.sort(places[:, 1])
        if (distance[pairs] >= DIGIT_SIDE).all() and heights[0] < heights[1]:
            return places
