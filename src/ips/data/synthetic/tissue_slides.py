"""Slides of stained tissue for machines without CAMELYON16, with the truth about them.

The question is the paper's in Sect. 4.2: some slides hold a few abnormal nuclei, larger, darker and
more crowded than the rest, in well under a hundredth of the tissue, and only the slide has a label.

    slides.csv           path, tumor (0 or 1) and split of each slide
    slides/NAME.tif      a tiled pyramid of three levels, 0.5 µm per pixel, JPEG
    masks/NAME.png       white where abnormal nuclei lie, one pixel for 4 x 4 of the slide
    truth/NAME.geojson   outlines of their clusters, and the centre and radius of each nucleus
    slides.json          what the slides were drawn with
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tifffile
from PIL import Image as PILImage
from PIL import ImageDraw

from ips.annotations import polygon_feature, write_geojson
from ips.data.split import stratified_split
from ips.data.synthetic.tissue_drawing import TILE, Cluster, TissueSlide
from ips.errors import DataError
from ips.files import agree, atomic_write
from ips.images.image import Pixels

MPP = 0.5
"""Micrometres per pixel."""

MASK_STEP = 4
"""Pixels of the slide per pixel of a mask."""

SMALLEST_SIDE = 1024
TEST_SHARE = 1 / 3

_FACTOR = 4  # from level to level
_QUALITY = 85
_VERSION = 2


def write_tissue_slides(
    folder: str | Path,
    *,
    count: int = 60,
    side: int = 4096,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Draw slides into ``folder``, every other one with abnormal nuclei.

    Slides that are there already are left as they are, so an interrupted call goes on where it
    was. A slide depends on ``side``, ``seed`` and its number alone. In memory are a tile and the
    second level, a sixteenth of the pixels.

    Args:
        folder: to write to.
        count: number of slides; a third of each kind is for testing.
        side: of a slide in pixels, a multiple of 256.
        seed: other slides for another seed.
        progress: is told how many slides are done, and of how many.
    """
    folder = Path(folder)
    if count < 2:
        raise DataError(f"count={count}: there is nothing to tell apart, ask for 2 slides or more")
    if side < SMALLEST_SIDE or side % TILE:
        raise DataError(f"side={side}: take a multiple of {TILE}, {SMALLEST_SIDE} or more")
    if seed < 0:
        raise DataError(f"seed={seed} is negative: take 0 or more")
    for name in ("slides", "masks", "truth"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    agree(folder / "slides.json", {"version": _VERSION, "side": side, "seed": seed, "mpp": MPP})
    labels = [_label(seed, number) for number in range(count)]
    for number, label in enumerate(labels):
        if not (folder / _path(number)).exists():
            _write(folder, TissueSlide(side, seed=seed, number=number, abnormal=label), number)
        if progress is not None:
            progress(number + 1, count)
    _, held_out = stratified_split(labels, test=TEST_SHARE, seed=seed)
    rows = [
        f"{_path(number)},{int(label)},{'test' if number in held_out else 'train'}\n"
        for number, label in enumerate(labels)
    ]
    with atomic_write(folder / "slides.csv") as stream:
        stream.write("".join(["path,tumor,split\n", *rows]).encode())


def load_clusters(path: str | Path) -> list[Cluster]:
    """The clusters of abnormal nuclei in a ``truth/NAME.geojson``; none in a slide without."""
    try:
        features = json.loads(Path(path).read_bytes())["features"]
        nuclei = [feature["properties"]["nuclei"] for feature in features]
        return [Cluster(np.array(each, dtype=np.float64).reshape(-1, 3)) for each in nuclei]
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist: run ips data tissue-slides") from error
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} is not the truth about a generated slide ({error!r}): run ips data "
            "tissue-slides into another folder"
        ) from error


def abnormal_patches(
    clusters: Sequence[Cluster], coords: npt.NDArray[np.int64], *, extent: int
) -> npt.NDArray[np.bool_]:
    """Which patches hold the centre of an abnormal nucleus, ``(n,)``.

    Args:
        clusters: of a slide, from :func:`load_clusters`.
        coords: ``(n, 2)`` corners of patches in full-resolution pixels.
        extent: side of a patch in full-resolution pixels.
    """
    held = np.zeros(len(coords), dtype=np.bool_)
    for cluster in clusters:
        for centre in cluster.nuclei[:, :2]:
            held |= ((coords <= centre) & (centre < coords + extent)).all(axis=1)
    return held


def _write(folder: Path, slide: TissueSlide, number: int) -> None:
    """The truth first: a slide that is there has everything."""
    name = _path(number).stem
    with atomic_write(folder / "masks" / f"{name}.png") as stream:
        _mask(slide).save(stream, format="PNG")
    write_geojson(folder / "truth" / f"{name}.geojson", map(_feature, slide.clusters))
    with atomic_write(folder / _path(number)) as stream:
        _write_pyramid(stream, slide)


def _write_pyramid(stream: Any, slide: TissueSlide) -> None:
    side = slide.side
    coarse = np.empty((side // _FACTOR, side // _FACTOR, 3), np.uint8)

    def drawn() -> Iterator[Pixels]:
        part = TILE // _FACTOR
        for row in range(side // TILE):
            for column in range(side // TILE):
                tile = slide.tile(column, row)
                y, x = row * part, column * part
                coarse[y : y + part, x : x + part] = _reduced(tile)
                yield tile

    options: dict[str, Any] = {
        "tile": (TILE, TILE),
        "photometric": "rgb",
        "compression": "jpeg",
        "compressionargs": {"level": _QUALITY},
        "resolutionunit": "CENTIMETER",
        "metadata": None,
        "software": "ips",
    }
    with tifffile.TiffWriter(stream) as file:
        file.write(
            drawn(),
            shape=(side, side, 3),
            dtype=np.uint8,
            resolution=(1e4 / MPP, 1e4 / MPP),
            **options,
        )
        level, mpp = coarse, MPP * _FACTOR
        for _ in range(2):
            file.write(level, subfiletype=1, resolution=(1e4 / mpp, 1e4 / mpp), **options)
            level, mpp = _reduced(level), mpp * _FACTOR


def _reduced(pixels: Pixels) -> Pixels:
    return np.asarray(PILImage.fromarray(pixels).reduce(_FACTOR))


def _mask(slide: TissueSlide) -> PILImage.Image:
    size = slide.side // MASK_STEP
    mask = PILImage.new("1", (size, size))
    pen = ImageDraw.Draw(mask)
    for cluster in slide.clusters:
        pen.polygon([(x, y) for x, y in (cluster.outline / MASK_STEP).tolist()], fill=1)
    return mask


def _feature(cluster: Cluster) -> dict[str, Any]:
    outline, nuclei = (np.round(each, 2).tolist() for each in (cluster.outline, cluster.nuclei))
    return polygon_feature(outline, name="Abnormal", nuclei=nuclei)


def _label(seed: int, number: int) -> bool:
    """Whether a slide has abnormal nuclei: one of each two, whichever."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(number // 2, 0, 0, 0)))
    return bool(rng.integers(2)) != bool(number % 2)


def _path(number: int) -> Path:
    return Path("slides") / f"slide-{number:03d}.tif"
