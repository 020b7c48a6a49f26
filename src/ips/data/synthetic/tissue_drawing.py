"""One slide of stained tissue, drawn tile by tile: pink stroma, purple nuclei, white glass.

A tile is computed from maps of two stains, haematoxylin and eosin, which absorb light by the law of
Beer and Lambert. Large shapes come from coarse noise fields, texture from small periodic textures,
and nuclei from sprites. A tile depends on the seed, the number of the slide and its position only,
so tiles can be drawn in any order. Sizes are in pixels of 0.5 µm.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ips.data.seeded import seeded_generator
from ips.data.synthetic import tissue_parts as parts
from ips.data.synthetic.tissue_parts import TILE, Cluster, Floats
from ips.images.image import Pixels

CLUSTERS = (2, 4)
"""Default for the smallest and the largest number of clusters on an abnormal slide."""

_COARSE, _FINE = 64, 16  # distance between the nodes of noise fields
_SPACING = 13  # spacing of the jittered grid of nuclei
_RAGGED = 0.08  # amount of noise at the edge of the tissue
_REACH = 20  # upper bound of the radius of a nucleus

# Absorption of red, green and blue by a unit of each stain.
_HAEMATOXYLIN = (0.66, 0.70, 0.30)
_EOSIN = (0.09, 0.95, 0.28)


class TissueSlide:
    """A slide of ``side`` x ``side`` pixels.

    Args:
        side: side of the slide in pixels, a multiple of the tile.
        seed: random seed of the data set.
        number: number of the slide in the data set.
        abnormal: whether the slide has clusters of abnormal nuclei.
        clusters: smallest and largest number of clusters on an abnormal slide.
    """

    def __init__(
        self,
        side: int,
        *,
        seed: int,
        number: int,
        abnormal: bool,
        clusters: tuple[int, int] = CLUSTERS,
    ) -> None:
        self.side = side
        self._key = seed, number
        rng = seeded_generator(*self._key)
        self._white = rng.uniform(238, 247) + rng.uniform(-1.5, 1.5, 3)
        stains = np.array([_HAEMATOXYLIN, _EOSIN]) + rng.uniform(-0.05, 0.05, (2, 3))
        self._stains = (stains * rng.uniform(0.85, 1.15, (2, 1))).astype(np.float32)  # (2, 3)
        nodes = side // _COARSE + 3
        self._tissue = _tissue_field(rng, nodes)
        self._cellular = parts.smooth_noise(rng, nodes, 6)
        self._lymphoid = parts.smooth_noise(rng, nodes, 9)
        self._directions = np.stack([parts.smooth_noise(rng, nodes, 5) for _ in range(4)])
        self._rough = parts.smooth_noise(rng, side // _FINE + 3, 2)
        self._offsets = rng.integers(0, 1024, (6, 2)).tolist()
        self.clusters = self._place_clusters(rng, clusters) if abnormal else []
        self._nuclei = lru_cache(maxsize=4 * (side // TILE))(self._draw_nuclei)

    def tile(self, column: int, row: int) -> Pixels:
        """Pixels of a tile, ``(256, 256, 3)``."""
        grain = self._texture(parts.GRAIN, column, row)
        light = np.empty((TILE, TILE, 3), np.float32)
        light[:] = self._white
        light += grain[..., None] * 0.7
        inside = self._coarse(self._tissue, column, row)
        if inside.max() > -0.25:
            light *= np.exp(-self._optical_density(column, row, inside))
        return np.clip(np.rint(light), 0, 255).astype(np.uint8)

    def _optical_density(self, column: int, row: int, inside: Floats) -> Floats:
        """Optical density of a tile, ``(256, 256, 3)``."""
        rough = parts.upsample(self._rough, _FINE, column, row)
        texture = [self._texture(k, column, row) for k in range(6)]
        weights = np.exp(np.stack([self._coarse(f, column, row) for f in self._directions]) * 2.5)
        fibres = sum(w * t for w, t in zip(weights, texture[:4], strict=True)) / weights.sum(axis=0)
        clumps, grain = texture[parts.CLUMPS], texture[parts.GRAIN]
        cellular = parts.smooth_step(
            self._coarse(self._cellular, column, row) + 0.15 * rough, -0.3, 0.5
        )
        edge = inside + _RAGGED * rough + 0.012 * clumps
        tissue = parts.smooth_step(edge, 0.0, 0.04)
        # Fibres separate where there are few cells, and the rim is loose.
        loose = fibres + 0.5 * rough - cellular + 0.5 * parts.smooth_step(edge, 0.25, 0.0)
        tissue = tissue * (1 - 0.8 * parts.smooth_step(loose, 1.0, 1.7))
        eosin = 0.36 + 0.11 * fibres * (1 - 0.7 * cellular) + 0.05 * clumps + 0.03 * grain
        eosin = eosin * (1 - 0.25 * cellular)
        haematoxylin = 0.05 + 0.10 * cellular + 0.02 * clumps
        maps = np.stack([haematoxylin, eosin]) * tissue  # (2, 256, 256)
        self._add_nuclei(maps[0], column, row)
        maps = np.maximum(maps, 0).astype(np.float32)
        density: Floats = np.tensordot(maps, self._stains, axes=(0, 0))  # (256, 256, 3)
        return density

    def _add_nuclei(self, haematoxylin: Floats, column: int, row: int) -> None:
        """Add the nuclei of a tile and those of its neighbours that reach into it."""
        size = TILE + 4 * _REACH + 1  # one more for a centre that is rounded up
        padded = np.zeros((size, size), np.float32)
        around = [
            self._nuclei(column + i, row + j) + (np.array([i, j, 0, 0, 0]) * TILE)
            for j in (-1, 0, 1)
            for i in (-1, 0, 1)
        ]
        nuclei = np.concatenate(around)  # (n, 5) x, y, kind, sprite, strength
        near = ((nuclei[:, :2] > -_REACH) & (nuclei[:, :2] < TILE + _REACH)).all(axis=1)
        for x, y, kind, sprite, strength in nuclei[near].tolist():
            nucleus = parts.nucleus_sprites(int(kind))[int(sprite)]
            half = len(nucleus) // 2
            left, top = round(x) + 2 * _REACH - half, round(y) + 2 * _REACH - half
            place = padded[top : top + len(nucleus), left : left + len(nucleus)]
            np.maximum(place, nucleus * np.float32(strength), out=place)
        inner = slice(2 * _REACH, 2 * _REACH + TILE)
        haematoxylin += padded[inner, inner]

    def _draw_nuclei(self, column: int, row: int) -> npt.NDArray[np.float64]:
        """Nuclei centred in a tile, ``(n, 5)``: x, y, kind, sprite and strength."""
        if not (0 <= column < self.side // TILE and 0 <= row < self.side // TILE):
            return np.empty((0, 5))
        rng = seeded_generator(*self._key, column, row)
        lattice = np.stack(np.meshgrid(*[np.arange(0, TILE, _SPACING)] * 2), axis=-1).reshape(-1, 2)
        at = np.minimum(lattice + rng.uniform(0, _SPACING, lattice.shape), TILE - 1)  # (n, 2)
        chance, pick, sprite, strength = rng.random((4, len(at)))
        where = tuple(at.astype(int).T[::-1])
        inside = self._coarse(self._tissue, column, row)[where]
        inside += _RAGGED * parts.upsample(self._rough, _FINE, column, row)[where]
        cellular = parts.smooth_step(self._coarse(self._cellular, column, row)[where], -0.3, 0.5)
        lymphoid = parts.smooth_step(self._coarse(self._lymphoid, column, row)[where], 1.25, 1.6)
        density = np.maximum(0.10 + 0.30 * cellular, 0.95 * lymphoid)
        kind = np.where(pick < 0.75 - 0.65 * cellular, parts.STROMAL, parts.ROUND)
        kind[pick > 0.996] = parts.REACTIVE
        kind[chance < 0.9 * lymphoid] = parts.LYMPHOCYTE
        keep = (chance < density) & (inside > 0.03)
        on_slide = at + np.array([column, row]) * TILE
        abnormal = []
        for cluster in self.clusters:
            centre = cluster.nuclei[:, :2].mean(axis=0)
            radius = np.linalg.norm(cluster.nuclei[:, :2] - centre, axis=1).max() + 10
            keep &= np.linalg.norm(on_slide - centre, axis=1) > radius
            local = cluster.nuclei[:, :2] - np.array([column, row]) * TILE
            here = ((local >= 0) & (local < TILE)).all(axis=1)
            size = (cluster.nuclei[here, 2] - 9) / 5 * parts.SPRITES
            strong = rng.uniform(0.95, 1.15, int(here.sum()))
            abnormal.append(np.column_stack([local[here], 0 * size + parts.ABNORMAL, size, strong]))
        normal = np.column_stack([at, kind, sprite * parts.SPRITES, 0.75 + 0.4 * strength])[keep]
        return np.concatenate([normal, *abnormal])

    def _place_clusters(self, rng: np.random.Generator, counts: tuple[int, int]) -> list[Cluster]:
        """Draw clusters well inside the tissue, away from each other."""
        field = self._tissue[1:-2, 1:-2]
        deep = np.argwhere(field > np.quantile(field, 0.85))  # (n, 2) row, column of nodes
        centres: list[npt.NDArray[np.float64]] = []
        for _ in range(int(rng.integers(*counts, endpoint=True))):
            for _ in range(20):
                centre = (deep[rng.integers(len(deep))][::-1] + rng.random(2)) * _COARSE
                centre = np.clip(centre, 100, self.side - 100)
                if all(np.linalg.norm(centre - other) > 6 * _COARSE for other in centres):
                    centres.append(centre)
                    break
        return [parts.draw_cluster(rng, centre) for centre in centres]

    def _coarse(self, field: Floats, column: int, row: int) -> Floats:
        return parts.upsample(field, _COARSE, column, row)

    def _texture(self, number: int, column: int, row: int) -> Floats:
        texture, period = parts.textures()[number]
        dx, dy = self._offsets[number]
        x, y = (column * TILE + dx) % period, (row * TILE + dy) % period
        return texture[y : y + TILE, x : x + TILE]


def _tissue_field(rng: np.random.Generator, nodes: int) -> Floats:
    """Field that is positive inside tissue: a few ragged pieces on about a third of the slide."""
    y, x = (np.mgrid[:nodes, :nodes] - 1) / (nodes - 3)  # one node before the slide, two after it
    field = np.full((nodes, nodes), -9.0)
    for _ in range(rng.integers(1, 4)):
        cx, cy = rng.uniform(0.3, 0.7, 2)
        a, b = rng.uniform(0.2, 0.42, 2)
        turn = rng.uniform(0, np.pi)
        u, v = x - cx, y - cy
        along, across = u * np.cos(turn) + v * np.sin(turn), v * np.cos(turn) - u * np.sin(turn)
        field = np.maximum(field, 1 - np.hypot(along / a, across / b))
    field = (
        field + 0.22 * parts.smooth_noise(rng, nodes, 9) + 0.10 * parts.smooth_noise(rng, nodes, 4)
    )
    # Glass along the border.
    limit = np.minimum.reduce([x, y, 1 - x, 1 - y]) * (nodes - 3) * _COARSE / 150 - 1
    field = np.minimum(field, limit)
    # Correct the area of tissue if it is too small or too large.
    wanted = rng.uniform(0.28, 0.42)
    if not 0.8 * wanted < (field > 0).mean() < 1.25 * wanted:
        field = np.minimum(field - np.quantile(field, 1 - wanted), limit)
    tissue: Floats = field.astype(np.float32)
    return tissue
