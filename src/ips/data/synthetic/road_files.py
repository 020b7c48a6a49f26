"""Road pictures as files: a folder of images and a CSV of labels, with the truth about them.

road.csv               path, sign and split of each picture
pictures/NAME.png      the pictures
truth/NAME.geojson     the box of the speed limit, if there is one
road.json              what the pictures were drawn with
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import get_args

from PIL import Image as PILImage

from ips.annotations import polygon_feature, write_geojson
from ips.data.split import Split
from ips.data.synthetic.road_scene import draw_scene
from ips.data.synthetic.road_signs import NAMES, RoadSigns
from ips.errors import DataError
from ips.files import agree, atomic_write

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
    """Draw pictures into ``folder``, those that `RoadSigns` has.

    Pictures that are there already are left as they are, so an interrupted call goes on where it
    was.

    Args:
        folder: to write to.
        width: of a picture in pixels.
        height: of a picture in pixels.
        train: number of pictures to train on.
        test: number of pictures to test on.
        seed: other pictures for another seed.
        progress: is told how many pictures are done, and of how many.
    """
    folder, counts = Path(folder), dict(zip(get_args(Split), (train, test), strict=True))
    if min(train, test) < 0 or not train + test:
        raise DataError(f"train={train} and test={test}: ask for at least one picture")
    splits = {
        split: RoadSigns(width=width, height=height, count=count, split=split, seed=seed)
        for split, count in counts.items()
        if count
    }
    for name in ("pictures", "truth"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    settings = {"version": _VERSION, "width": width, "height": height, "seed": seed}
    agree(folder / "road.json", settings)
    rows = []
    for split, pictures in splits.items():
        for number in range(len(pictures)):
            path = Path("pictures") / f"{split}-{number:04d}.png"
            if not (folder / path).exists():
                _write(folder, path, pictures, number)
            rows.append(f"{path.as_posix()},{NAMES[pictures.label(number)]},{split}\n")
            if progress is not None:
                progress(len(rows), train + test)
    with atomic_write(folder / "road.csv") as stream:
        stream.write("".join(["path,sign,split\n", *rows]).encode())


def _write(folder: Path, path: Path, pictures: RoadSigns, number: int) -> None:
    """The truth first: a picture that is there has everything."""
    name = NAMES[pictures.label(number)]
    boxes = [
        polygon_feature([(x0, y0), (x1, y0), (x1, y1), (x0, y1)], name=name)
        for x0, y0, x1, y1 in pictures.boxes(number).tolist()
    ]
    write_geojson(folder / "truth" / f"{path.stem}.geojson", boxes)
    with atomic_write(folder / path) as stream:
        PILImage.fromarray(draw_scene(pictures.layout(number))).save(stream, format="PNG")
