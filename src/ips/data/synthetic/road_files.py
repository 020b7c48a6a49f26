"""Road images as files: a folder of images with a CSV of labels and the ground truth.

road.csv              path, sign and split of each image
pictures/NAME.png     the images
truth/NAME.geojson    the box of the speed limit, if there is one
road.json             the settings
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import get_args

from PIL import Image as PILImage

from ips.annotations import polygon_feature, write_geojson
from ips.data.split import Split
from ips.data.synthetic.folder import Row, write_folder
from ips.data.synthetic.road_scene import draw_scene
from ips.data.synthetic.road_signs import NAMES, RoadSigns
from ips.errors import DataError
from ips.files import atomic_write

_VERSION = 1


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
        width: width of an image in pixels.
        height: height of an image in pixels.
        train: number of training images.
        test: number of test images.
        seed: random seed of the images.
        progress: callback that receives the number of images done and of all images.
    """
    folder = Path(folder)
    if min(train, test) < 0 or not train + test:
        raise DataError(f"train={train} and test={test}: ask for at least one picture")
    images: list[tuple[RoadSigns, int]] = []
    rows: list[Row] = []
    for split, count in zip(get_args(Split), (train, test), strict=True):
        if count:
            roads = RoadSigns(width=width, height=height, count=count, split=split, seed=seed)
            images += [(roads, number) for number in range(count)]
            rows += [
                (_path(split, number), NAMES[roads.label(number)], split) for number in range(count)
            ]
    write_folder(
        folder,
        "road",
        task="sign",
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
