"""Road images with a small, distant speed limit, in place of the traffic signs of Sect. 4.1.

The paper uses photographs that have to be downloaded. These drawn images pose the same problem:
is there a limit of 50, 70 or 80, and which? Each image shows several signs on poles. Where there
is no speed limit, another sign with a red ring takes its place, so that only the text in the ring
tells the classes apart. An image depends on the seed, the split, the epoch and its index only.

`write_road_signs` writes a folder:

    road.csv              path, sign and split of each image
    pictures/NAME.png     the images
    truth/NAME.geojson    the box of the speed limit, if there is one
    road.json             the settings
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image as PILImage
from torch import Tensor

from ips.annotations import polygon_feature, write_geojson
from ips.data.output import locks_output
from ips.data.regions import Region
from ips.data.seeded import SeededDataset, seeded_generator
from ips.data.split import SPLIT_NUMBERS, Split, check_split
from ips.data.synthetic.folder import Row, write_folder
from ips.data.synthetic.road_layout import SIZE, SMALLEST_SIZE, Layout, draw_layout
from ips.data.synthetic.road_scene import draw_scene
from ips.data.synthetic.road_sprites import SPEEDS
from ips.errors import DataError
from ips.files import atomic_write
from ips.images.array import WholeImage, as_pixels
from ips.images.image import Pixels
from ips.patches.image import Edge, Grid, ImagePatches

NAMES = ["no sign", *SPEEDS]
NO_SIGN = 0
TASKS: dict[str, tuple[Literal["multiclass", "multilabel"], int]] = {
    "sign": ("multiclass", len(NAMES)),
}
"""Kind and number of classes of the task."""

# Purposes of random numbers.
_CLASSES, _PLACES, _PAINT = range(3)
_VERSION = 1  # of the settings file


class RoadImage(WholeImage):
    """An image that is drawn at the first read, and again after `close`."""

    def __init__(self, layout: Layout, *, name: str) -> None:
        super().__init__(name, size=(layout.width, layout.height), channels=3)
        self.layout = layout

    def _open(self) -> Pixels:
        return as_pixels(draw_scene(self.layout), self.name)


class RoadSigns(SeededDataset[tuple[ImagePatches, dict[str, Tensor]]]):
    """Road images that are drawn on demand; one in four shows no speed limit.

    Args:
        width, height: size of an image in pixels.
        count: number of images; 747 for training and 684 for testing in the paper.
        split: split to draw; each uses its own random numbers.
        seed: random seed of the images.
        patch_size: side of a patch in pixels; 100 in the paper, on 1,600 x 1,200 px.
        stride: distance between patches; equal to ``patch_size`` in the paper.
        edge: what to do with patches that cross the border of the image.
        fresh: whether the images change from epoch to epoch.
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
                f"a road image of {width} x {height} px leaves no room for signs: "
                f"take at least {SMALLEST_SIZE[0]} x {SMALLEST_SIZE[1]} px"
            )
        check_split(split)
        super().__init__(f"road-signs/{split}", count=count, seed=seed, fresh=fresh)
        self.grid = Grid(width, height, patch=patch_size, stride=stride, edge=edge)
        self.split = split

    def __getitem__(self, index: int) -> tuple[ImagePatches, dict[str, Tensor]]:
        image = RoadImage(self.layout(index), name=f"{self.name}/{index}")
        grid = self.grid
        patches = ImagePatches(image, patch_size=grid.patch, stride=grid.stride, edge=grid.edge)
        return patches, {"sign": torch.tensor(self.label(index))}

    def boxes(self, index: int) -> npt.NDArray[np.int64]:
        """Box of the speed limit on image ``index``: x0, y0, x1, y1 ``(1, 4)``, or ``(0, 4)``."""
        limits = [sign for sign in self.layout(index).signs if sign.kind in SPEEDS]
        corners = [(s.x, s.y, s.x + s.diameter, s.y + s.diameter) for s in limits]
        return np.array(corners, dtype=np.int64).reshape(-1, 4)

    def objects(self, index: int, task: str) -> list[Region]:
        """Region of the speed limit on image ``index``, if there is one."""
        return [Region.box(*box) for box in self.boxes(index).tolist()]

    def layout(self, index: int) -> Layout:
        """Content of image ``index`` in the current epoch."""
        label = self.label(index)
        return draw_layout(
            seeded_generator(self.seed, *self._key(_PLACES, index)),
            SPEEDS[label - 1] if label else None,
            size=(self.grid.width, self.grid.height),
            paint=(self.seed, *self._key(_PAINT, index)),
        )

    def label(self, index: int) -> int:
        """Class of image ``index``, an index into `NAMES`."""
        self.check_index(index)
        # Each class occurs once in every four images, in random order.
        four, place = divmod(index, len(NAMES))
        rng = seeded_generator(self.seed, *self._key(_CLASSES, four))
        return int(rng.permutation(len(NAMES))[place])

    def _key(self, purpose: int, number: int) -> tuple[int, ...]:
        return SPLIT_NUMBERS[self.split], int(self._epoch), number, purpose


@locks_output
def write_road_signs(
    folder: str | Path,
    *,
    width: int = 400,
    height: int = 300,
    train: int = 1500,
    test: int = 400,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write the images of `RoadSigns` to ``folder``; an interrupted call can be repeated.

    Args:
        folder: output folder.
        width, height: size of an image in pixels.
        train, test: numbers of images.
        seed: random seed of the images.
        progress: callback that receives the number of images done and of all images.
    """
    folder = Path(folder)
    if min(train, test) < 0 or not train + test:
        raise DataError(f"train={train} and test={test}: ask for at least one picture")
    images: list[tuple[RoadSigns, int]] = []
    rows: list[Row] = []
    counts: dict[Split, int] = {"train": train, "test": test}
    for split, count in counts.items():
        if count:
            roads = RoadSigns(width=width, height=height, count=count, split=split, seed=seed)
            images += [(roads, number) for number in range(count)]
            rows += [(_path(split, number), split) for number in range(count)]

    def sign(image: int) -> str:
        roads, number = images[image]
        return NAMES[roads.label(number)]

    write_folder(
        folder,
        "road",
        labels={"sign": sign},
        rows=rows,
        subfolders=("pictures", "truth"),
        settings={"version": _VERSION, "width": width, "height": height, "seed": seed},
        draw=lambda number: _write(folder, *images[number]),
        progress=progress,
    )


def _write(folder: Path, roads: RoadSigns, number: int) -> None:
    path, name = _path(roads.split, number), NAMES[roads.label(number)]
    boxes = [
        polygon_feature([(x0, y0), (x1, y0), (x1, y1), (x0, y1)], name=name)
        for x0, y0, x1, y1 in roads.boxes(number).tolist()
    ]
    write_geojson(folder / "truth" / f"{path.stem}.geojson", boxes)
    with atomic_write(folder / path) as stream:
        PILImage.fromarray(draw_scene(roads.layout(number))).save(stream, format="PNG")


def _path(split: Split, number: int) -> PurePosixPath:
    return PurePosixPath("pictures") / f"{split}-{number:04d}.png"
