"""Write a slide of any size as a pyramidal TIFF: blobs of tissue on a white background.

    python benchmarks/make_gigapixel.py slide.tif                # 131,072 px: 16 gigapixels
    python benchmarks/make_gigapixel.py small.tif --side 8192
    python benchmarks/make_gigapixel.py full.tif --tissue full --spots 8

Each tile is drawn, written and discarded, so memory does not depend on the size. Every level is
drawn from the same description of the scene.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import imagecodecs
import numpy as np
import numpy.typing as npt
import tifffile
from rich.console import Console

from ips.files import atomic_path
from ips.progress import progress_bar

TILE = 256
TEXTURE = 1024  # the texture repeats after this many pixels of level 0
MPP = 0.25  # micrometres per pixel, as at 40x
_SPOT = (100, 250)  # radius of a dark spot in pixels of level 0
_DARK = np.array([0.62, 0.42, 0.66], dtype=np.float32)  # its colour
SMALLEST = 1024  # the pyramid ends at a level of about this side

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Scene:
    """Round blobs of tissue with wavy edges.

    Attributes:
        centres: (n, 2) x, y in level-0 pixels.
        radii: (n,) mean radius.
        waves: (n, 2) number of waves of the edge, and their phase.
        tints: (n, 3) colour of the tissue, 0..1.
        textures: per level, (side, side, 3) darkness of the cells.
        spots: (n, 3) x, y and radius of round areas in the tissue that are stained dark.
    """

    centres: Floats
    radii: Floats
    waves: Floats
    tints: Floats
    textures: list[Floats]
    spots: Floats


Tissue = Literal["some", "half", "full"]


def make_scene(
    side: int, *, levels: int, seed: int, tissue: Tissue = "some", spots: int = 0
) -> Scene:
    rng = np.random.default_rng(seed)
    count = 24
    texture = _cells(rng)
    textures = [texture]
    while len(textures) < levels:
        t = textures[-1]
        if len(t) > 1:
            t = t.reshape(len(t) // 2, 2, len(t) // 2, 2, 3).mean(axis=(1, 3))
        textures.append(t)
    tints = np.array([0.86, 0.60, 0.74]) + rng.uniform(-0.06, 0.06, (count, 3))
    scene = Scene(
        centres=rng.uniform(0.08, 0.92, (count, 2)).astype(np.float32) * side,
        radii=rng.uniform(0.01, 0.045, count).astype(np.float32) * side,
        waves=np.stack([rng.integers(3, 9, count), rng.uniform(0, 6, count)], 1).astype(np.float32),
        tints=tints.astype(np.float32),
        textures=textures,
        spots=np.zeros((0, 3), dtype=np.float32),
    )
    if tissue == "half":
        scene = replace(scene, radii=4 * scene.radii)
    elif tissue == "full":
        middle = np.full((1, 2), side / 2, dtype=np.float32)
        scene = replace(scene, centres=middle, radii=np.array([side], dtype=np.float32))
    inside = rng.integers(len(scene.centres), size=spots)
    angles, far = rng.uniform(0, 2 * np.pi, spots), rng.uniform(0, 0.45, spots)
    ways = np.stack([np.cos(angles), np.sin(angles)], 1) * (far * scene.radii[inside])[:, None]
    places = scene.centres[inside] + ways.astype(np.float32)
    radii = rng.uniform(*_SPOT, (spots, 1)).astype(np.float32)
    return replace(scene, spots=np.concatenate([places, radii], 1).astype(np.float32))


def _cells(rng: np.random.Generator) -> Floats:
    """A texture of dark nuclei and fine grain that can be repeated without seams."""
    dark = np.zeros((TEXTURE, TEXTURE), dtype=np.float32)
    y, x = np.mgrid[-12:13, -12:13]
    for _ in range(900):
        shape = np.exp(-(((x * x + y * y) / rng.uniform(14, 50)) ** 2)).astype(np.float32)
        column, row = rng.integers(TEXTURE, size=2)
        at = np.ix_((row + y[:, 0]) % TEXTURE, (column + x[0]) % TEXTURE)
        dark[at] = np.maximum(dark[at], shape)
    grain = rng.normal(0, 0.03, (TEXTURE, TEXTURE, 1)).astype(np.float32)
    nuclei = dark[..., None] * np.array([0.45, 0.42, 0.22], dtype=np.float32)
    return (nuclei + grain).astype(np.float32)


def tiles(scene: Scene, *, side: int, level: int, on_tile: Callable[[], None]) -> Iterator[bytes]:
    """Encoded tiles of a level, row by row; the background tile is encoded only once."""
    scale = 2**level
    across = -(-(side // scale) // TILE)
    white = encode(np.full((TILE, TILE, 3), 255, dtype=np.uint8))
    for row in range(across):
        for column in range(across):
            near = _near(scene, column * TILE * scale, row * TILE * scale, TILE * scale)
            if len(near):
                yield encode(draw(scene, near, column=column, row=row, level=level))
            else:
                yield white
            on_tile()


def _near(scene: Scene, x: int, y: int, extent: int) -> npt.NDArray[np.int64]:
    """Indices of the blobs that may touch a square."""
    corner = np.array([x, y], dtype=np.float32)
    closest = np.clip(scene.centres, corner, corner + extent)
    distance = np.hypot(*(closest - scene.centres).T)
    return np.flatnonzero(distance < 1.2 * scene.radii)


def draw(
    scene: Scene, near: npt.NDArray[np.int64], *, column: int, row: int, level: int
) -> npt.NDArray[np.uint8]:
    scale = 2**level
    x = (np.arange(TILE, dtype=np.float32) + column * TILE + 0.5) * scale
    y = (np.arange(TILE, dtype=np.float32)[:, None] + row * TILE + 0.5) * scale
    texture = scene.textures[level]
    at = [(np.arange(TILE) + start * TILE) % len(texture) for start in (row, column)]
    # Uneven staining: no two tiles are equal although the texture repeats.
    shade = 0.03 * (np.sin(x / 2311) + np.cos(y / 1709))  # (h, w)
    cells = texture[np.ix_(*at)] + shade[..., None]  # (h, w, 3)
    out = np.ones((TILE, TILE, 3), dtype=np.float32)
    for i in near:
        dx, dy = x - scene.centres[i, 0], y - scene.centres[i, 1]
        edge = 1 + 0.15 * np.sin(scene.waves[i, 0] * np.arctan2(dy, dx) + scene.waves[i, 1])
        inside = np.hypot(dx, dy) < scene.radii[i] * edge
        out[inside] = scene.tints[i] - cells[inside]
    for left, top, radius in scene.spots:
        inside = np.hypot(x - left, y - top) < radius
        out[inside] = _DARK - cells[inside]
    return (out.clip(0, 1) * 255).astype(np.uint8)


def encode(tile: npt.NDArray[np.uint8]) -> bytes:
    """Encode a tile as JPEG, as scanners do."""
    data = imagecodecs.jpeg8_encode(
        tile, level=85, colorspace="rgb", outcolorspace="ycbcr", subsampling="420"
    )
    return bytes(data)


def write_slide(
    path: Path,
    *,
    side: int,
    seed: int = 0,
    tissue: Tissue = "some",
    spots: int = 0,
    on_tile: Callable[[], None] = lambda: None,
) -> None:
    """Write a slide; ``on_tile`` is called after every tile."""
    sizes = level_sizes(side)
    scene = make_scene(side, levels=len(sizes), seed=seed, tissue=tissue, spots=spots)
    options = {
        "dtype": "uint8",
        "tile": (TILE, TILE),
        "photometric": "ycbcr",
        "subsampling": (2, 2),
        "compression": "jpeg",
        "metadata": None,
    }
    with atomic_path(path) as part, tifffile.TiffWriter(part, bigtiff=True) as file:
        for level, size in enumerate(sizes):
            per_cm = 1e4 / (MPP * 2**level)
            file.write(
                tiles(scene, side=side, level=level, on_tile=on_tile),
                shape=(size, size, 3),
                subifds=0 if level else len(sizes) - 1,
                subfiletype=1 if level else 0,
                resolution=(per_cm, per_cm),
                resolutionunit="CENTIMETER",
                **options,
            )


def level_sizes(side: int) -> list[int]:
    sizes = [side]
    while sizes[-1] // 2 >= SMALLEST:
        sizes.append(sizes[-1] // 2)
    return sizes


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Write a pyramidal TIFF of any size.")
    parser.add_argument("out", type=Path, metavar="OUT.tif")
    parser.add_argument(
        "--side", type=int, default=131_072, help="Side in pixels (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="Random seed of the scene")
    parser.add_argument(
        "--tissue",
        choices=get_args(Tissue),
        default="some",
        help="How much of the slide is tissue (default: %(default)s)",
    )
    parser.add_argument("--spots", type=int, default=0, help="Number of dark spots in the tissue")
    args = parser.parse_args(words)
    if args.side < TILE:
        parser.error(f"--side {args.side}: the smallest side is {TILE}")
    console = Console(stderr=True)
    with progress_bar(console) as bar:
        count = sum((-(-size // TILE)) ** 2 for size in level_sizes(args.side))
        task = bar.add_task("tiles", total=count, note="")
        write_slide(
            args.out,
            side=args.side,
            seed=args.seed,
            tissue=args.tissue,
            spots=args.spots,
            on_tile=lambda: bar.advance(task),
        )
    megabytes = args.out.stat().st_size / 1e6
    console.print(
        f"{args.out}: {args.side:,} x {args.side:,} px in {megabytes:,.0f} MB", highlight=False
    )


if __name__ == "__main__":
    main()
