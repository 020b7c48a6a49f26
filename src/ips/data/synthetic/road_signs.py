"""Road pictures with a small, distant speed limit to read, in place of those of Sect. 4.1.

The paper's traffic signs are photographs that not every machine has. These pictures ask the same
question, whether there is a limit of 50, 70 or 80 and which, and make it need every pixel: each
shows several signs on poles, and where there is no limit, another sign of the same red ring stands
in its place. A picture follows from the seed, the split, the epoch and its number alone.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from ips.data.synthetic.digits import Split
from ips.data.synthetic.road_layout import SIZE, SMALLEST_SIZE, Layout, draw_layout
from ips.data.synthetic.road_scene import draw_scene
from ips.data.synthetic.road_sprites import SPEEDS
from ips.errors import DataError
from ips.images.array import WholeImage, as_pixels
from ips.images.image import Header, Pixels
from ips.patches.grid import Edge, Grid
from ips.patches.image import ImagePatches

NAMES = ["no sign", *SPEEDS]
TASKS: dict[str, tuple[Literal["multiclass", "multilabel"], int]] = {
    "sign": ("multiclass", len(NAMES)),
}
"""Kind and number of classes of the label: which of `NAMES` the picture shows."""

# What random numbers are for.
_CLASSES, _PLACES, _PAINT = range(3)


class RoadImage(WholeImage):
    """A picture that is drawn when it is first read, and again after it was let go."""

    def __init__(self, layout: Layout, *, name: str) -> None:
        size = layout.width, layout.height
        super().__init__(name, Header(levels=(size,), channels=3, tiles=(None,)))
        self.layout = layout

    def _open(self) -> Pixels:
        return as_pixels(draw_scene(self.layout), self.name)


class RoadSigns(Dataset[tuple[ImagePatches, dict[str, Tensor]]]):
    """Road pictures as a map data set, each the same every time; one in four shows no limit.

    Args:
        width: of a picture in pixels.
        height: of a picture in pixels.
        count: number of pictures; 747 to train and 684 to test in the paper.
        split: training and test pictures are drawn from different random numbers.
        seed: other pictures for another seed.
        patch_size: side of a patch in pixels; 100 in the paper, on 1,600 x 1,200.
        stride: from patch to patch; as ``patch_size`` in the paper.
        edge: what happens to patches that reach beyond the picture.
        fresh: draw other pictures in each epoch that `set_epoch` announces.
    """

    def __init__(
        self,
        *,
        width: int = SIZE[0],
        height: int = SIZE[1],
        count: int = 2000,
        split: Split = "train",
        seed: int = 0,
        patch_size: int = 50,
        stride: int = 50,
        edge: Edge = "drop",
        fresh: bool = False,
    ) -> None:
        if width < SMALLEST_SIZE[0] or height < SMALLEST_SIZE[1]:
            raise DataError(
                f"a road picture of {width} x {height} px leaves no room for signs: "
                f"take at least {SMALLEST_SIZE[0]} x {SMALLEST_SIZE[1]} px"
            )
        if count < 1:
            raise DataError(f"a data set of {count} images is empty: ask for at least 1")
        if split not in get_args(Split):
            raise DataError(f"no split {split!r}: take train or test")
        if seed < 0:
            raise DataError(f"seed {seed} is negative: take 0 or more")
        self.grid = Grid(width, height, patch=patch_size, stride=stride, edge=edge)
        self.split = split
        self.seed = seed
        self.fresh = fresh
        self.name = f"road-signs/{split}"
        self._count = count
        # In shared memory, so that workers that outlive an epoch hear of the next one.
        self._epoch = torch.zeros((), dtype=torch.int64)
        self._epoch.share_memory_()

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[ImagePatches, dict[str, Tensor]]:
        image = RoadImage(self.layout(index), name=f"{self.name}/{index}")
        grid = self.grid
        patches = ImagePatches(image, patch_size=grid.patch, stride=grid.stride, edge=grid.edge)
        return patches, {"sign": torch.tensor(self.label(index))}

    def set_epoch(self, epoch: int) -> None:
        """With ``fresh``, the pictures of this epoch from now on; otherwise of no effect."""
        if self.fresh:
            self._epoch.fill_(epoch)

    def boxes(self, index: int) -> npt.NDArray[np.int64]:
        """``(n, 4)`` x0, y0, x1, y1 of the speed limits on picture ``index``: one or none."""
        limits = [sign for sign in self.layout(index).signs if sign.kind in SPEEDS]
        corners = [(s.x, s.y, s.x + s.diameter, s.y + s.diameter) for s in limits]
        return np.array(corners, dtype=np.int64).reshape(-1, 4)

    def layout(self, index: int) -> Layout:
        """What is where on picture ``index`` in the current epoch."""
        label = self.label(index)
        return draw_layout(
            self._rng(_PLACES, index),
            SPEEDS[label - 1] if label else None,
            size=(self.grid.width, self.grid.height),
            paint=(self.seed, self._key(_PAINT, index)),
        )

    def label(self, index: int) -> int:
        """Which of `NAMES` picture ``index`` shows."""
        # An IndexError, for it is what ends a loop over a sequence.
        if not 0 <= index < len(self):
            raise IndexError(f"{self.name}: there is no image {index}, only 0 to {len(self) - 1}")
        # Each class once in every four pictures, in an order of its own.
        four, place = divmod(index, len(NAMES))
        return int(self._rng(_CLASSES, four).permutation(len(NAMES))[place])

    def _rng(self, purpose: int, number: int) -> np.random.Generator:
        seeds = np.random.SeedSequence(self.seed, spawn_key=self._key(purpose, number))
        return np.random.Generator(np.random.PCG64(seeds))

    def _key(self, purpose: int, number: int) -> tuple[int, ...]:
        return (0 if self.split == "train" else 1, int(self._epoch), number, purpose)
