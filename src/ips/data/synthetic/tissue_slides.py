"""Synthetic slides of stained tissue with their ground truth, in place of CAMELYON16.

The task is that of Sect. 4.2 of the paper: half of the slides contain a few abnormal nuclei, which
are larger, darker and more crowded than the others. They cover less than 1 % of the tissue, and
only the slide has a label. With a dose, the number of clusters varies between all slides, and the
slide has numbers to predict (`ips.data.synthetic.tissue_dose`).

    slides.csv           path, tumor (0 or 1) and split of each slide; with a dose, also the number
                         of clusters, their area, months and event
    slides/NAME.tif      a tiled pyramid of three levels, 0.5 µm per pixel, JPEG
    masks/NAME.png       white inside the clusters of abnormal nuclei, at 1/4 of the resolution
    truth/NAME.geojson   outlines of these clusters, and the centre and radius of each nucleus
    slides.json          the settings
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt
import tifffile
from PIL import Image as PILImage
from PIL import ImageDraw

from ips.annotations import polygon_feature, write_geojson
from ips.data.output import locks_output
from ips.data.seeded import seeded_generator
from ips.data.split import stratified_split
from ips.data.synthetic import tissue_dose
from ips.data.synthetic.folder import Row, write_folder
from ips.data.synthetic.tissue_dose import Dose, draw_dose
from ips.data.synthetic.tissue_drawing import CLUSTERS, TissueSlide
from ips.data.synthetic.tissue_parts import TILE, Cluster
from ips.errors import DataError, because
from ips.files import atomic_write
from ips.images.image import Pixels

MPP = 0.5
"""Micrometres per pixel."""

MASK_STEP = 4
"""Pixels of the slide per pixel of a mask."""

SMALLEST_SIDE = 1024
TEST_SHARE = 1 / 3

_FACTOR = 4  # downsampling from one pyramid level to the next
_JPEG_QUALITY = 85
_VERSION = 2  # of the drawing code; slides of different versions must not be mixed


@locks_output
def write_tissue_slides(
    folder: str | Path,
    *,
    count: int = 60,
    side: int = 4096,
    seed: int = 0,
    clusters: tuple[int, int] | None = None,
    dose: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Draw slides, half of them with abnormal nuclei; call it again after an interruption.

    A slide depends on ``side``, ``seed``, ``clusters``, ``dose`` and its number only. Memory holds
    only one tile and the second pyramid level, a sixteenth of the pixels.

    Args:
        folder: output folder.
        count: number of slides; a third of each class is the test split.
        side: side of a slide in pixels, a multiple of 256.
        seed: random seed of the slides.
        clusters: smallest and largest number of clusters on a slide with abnormal nuclei; by
            default 2 and 4, with a dose 0 and 8.
        dose: draw clusters on all slides, and write numbers that depend on their area.
        progress: callback that receives the number of slides done and of all slides.
    """
    folder = Path(folder)
    if count < 2:
        raise DataError(f"count={count}: ask for at least 2 slides, one of each class")
    if side < SMALLEST_SIDE or side % TILE:
        raise DataError(f"side={side}: take a multiple of {TILE}, {SMALLEST_SIDE} or more")
    if seed < 0:
        raise DataError(f"seed={seed} is negative: take 0 or more")
    abnormal = [dose or _is_abnormal(seed, number) for number in range(count)]
    _, held_out = stratified_split(abnormal, test=TEST_SHARE, seed=seed)
    rows: list[Row] = [
        (_path(number), "test" if number in held_out else "train") for number in range(count)
    ]
    counts = clusters or (tissue_dose.CLUSTERS if dose else CLUSTERS)

    def draw(number: int) -> None:
        slide = TissueSlide(
            side, seed=seed, number=number, abnormal=abnormal[number], clusters=counts
        )
        _write(folder, slide, number)

    @cache
    def drawn(number: int) -> Dose:
        found = load_clusters(folder / "truth" / f"{_path(number).stem}.geojson")
        return draw_dose(found, mpp=MPP, seed=seed, number=number)

    settings: dict[str, Any] = {"version": _VERSION, "side": side, "seed": seed, "mpp": MPP}
    labels: dict[str, Callable[[int], object]] = {"tumor": lambda number: int(abnormal[number])}
    if dose:
        settings["dose"] = True
        labels = {
            "tumor": lambda number: int(drawn(number).clusters > 0),
            "clusters": lambda number: drawn(number).clusters,
            "area": lambda number: f"{drawn(number).area:.3f}",
            "months": lambda number: f"{drawn(number).months:.2f}",
            "event": lambda number: int(drawn(number).event),
        }
    if counts != CLUSTERS:  # folders of the default number do not name it
        settings["clusters"] = list(counts)
    write_folder(
        folder,
        "slides",
        labels=labels,
        rows=rows,
        subfolders=("slides", "masks", "truth"),
        settings=settings,
        draw=draw,
        progress=progress,
    )


def load_clusters(path: str | Path) -> list[Cluster]:
    """Read the clusters of abnormal nuclei from a ``truth/NAME.geojson``."""
    try:
        features = json.loads(Path(path).read_bytes())["features"]
        nuclei = [feature["properties"]["nuclei"] for feature in features]
        return [Cluster(np.array(each, dtype=np.float64).reshape(-1, 3)) for each in nuclei]
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist: run ips data tissue-slides") from error
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        reason = because(error, remedy="run ips data tissue-slides into another folder")
        raise DataError(f"{path} is not the ground truth of a synthetic slide {reason}") from error


def abnormal_patches(
    clusters: Sequence[Cluster], coords: npt.NDArray[np.int64], *, extent: int
) -> npt.NDArray[np.bool_]:
    """Which patches contain the centre of an abnormal nucleus, ``(n,)``.

    Args:
        clusters: clusters of a slide, from :func:`load_clusters`.
        coords: ``(n, 2)`` corners of patches in full-resolution pixels.
        extent: side of a patch in full-resolution pixels.
    """
    abnormal = np.zeros(len(coords), dtype=np.bool_)
    for cluster in clusters:
        for centre in cluster.nuclei[:, :2]:
            abnormal |= ((coords <= centre) & (centre < coords + extent)).all(axis=1)
    return abnormal


def _write(folder: Path, slide: TissueSlide, number: int) -> None:
    name = _path(number).stem
    with atomic_write(folder / "masks" / f"{name}.png") as stream:
        _mask(slide).save(stream, format="PNG")
    write_geojson(folder / "truth" / f"{name}.geojson", map(_feature, slide.clusters))
    with atomic_write(folder / _path(number)) as stream:
        _write_pyramid(stream, slide)


def _write_pyramid(stream: Any, slide: TissueSlide) -> None:
    side = slide.side
    second_level = np.empty((side // _FACTOR, side // _FACTOR, 3), np.uint8)

    def levels() -> Iterator[Any]:
        yield tiles()
        yield second_level
        yield _reduce(second_level)

    def tiles() -> Iterator[Pixels]:
        part = TILE // _FACTOR
        for row in range(side // TILE):
            for column in range(side // TILE):
                tile = slide.tile(column, row)
                y, x = row * part, column * part
                second_level[y : y + part, x : x + part] = _reduce(tile)
                yield tile

    with tifffile.TiffWriter(stream) as file:
        for number, level in enumerate(levels()):
            factor = _FACTOR**number
            file.write(
                level,
                shape=(side // factor, side // factor, 3),
                dtype=np.uint8,
                subfiletype=1 if number else None,
                resolution=(1e4 / (MPP * factor), 1e4 / (MPP * factor)),
                tile=(TILE, TILE),
                photometric="rgb",
                compression="jpeg",
                compressionargs={"level": _JPEG_QUALITY},
                resolutionunit="CENTIMETER",
                metadata=None,
                software="ips",
            )


def _reduce(pixels: Pixels) -> Pixels:
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


def _is_abnormal(seed: int, number: int) -> bool:
    """Whether a slide has abnormal nuclei: one slide of each pair, chosen at random."""
    rng = seeded_generator(seed, number // 2, 0, 0, 0)
    return bool(rng.integers(2)) != bool(number % 2)


def _path(number: int) -> PurePosixPath:
    return PurePosixPath("slides") / f"slide-{number:03d}.tif"
