"""One slide of stained tissue, drawn tile by tile: pink stroma, purple nuclei, white glass.

Light goes through two stains, haematoxylin and eosin, and each absorbs of it as Beer and Lambert
say, so a tile is two maps of how much stain there is. Large shapes come from coarse fields of
noise, texture from small periodic ones, and nuclei from a bank of stamps. What is where follows
from the seed, the number of the slide and the tile alone, so tiles can be drawn in any order, one
in memory at a time. Sizes are in pixels of 0.5 µm.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property, lru_cache

import numpy as np
import numpy.typing as npt
from PIL import Image as PILImage

from ips.images.image import Pixels

Floats = npt.NDArray[np.float32]

TILE = 256
"""Side of a tile."""

_COARSE, _FINE = 64, 16  # distance between the nodes of the fields of noise
_SPACING = 13  # of the lattice that nuclei are jittered about
_SPRITES = 40  # of each kind
_RAGGED = 0.08  # how much noise the edge of the tissue has
_REACH = 20  # no nucleus is drawn further than this from its centre
_KINDS = ("stromal", "round", "lymphocyte", "reactive", "abnormal")
_STROMAL, _ROUND, _LYMPHOCYTE, _REACTIVE, _ABNORMAL = range(len(_KINDS))

# How much a unit of each stain absorbs of red, green and blue.
_HAEMATOXYLIN = (0.66, 0.70, 0.30)
_EOSIN = (0.09, 0.95, 0.28)


@dataclass(frozen=True)
class Cluster:
    """Abnormal nuclei that lie together: ``(n, 3)`` their centres x, y and radii in pixels."""

    nuclei: npt.NDArray[np.float64]

    @cached_property
    def outline(self) -> npt.NDArray[np.float64]:
        """``(32, 2)`` corners of the convex polygon about the nuclei."""
        angles = np.linspace(0, 2 * np.pi, 32, endpoint=False)
        directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)  # (32, 2)
        reach = directions @ self.nuclei[:, :2].T + self.nuclei[:, 2]  # (32, n)
        outermost = self.nuclei[reach.argmax(axis=1)]  # (32, 3)
        corners: npt.NDArray[np.float64] = outermost[:, :2] + outermost[:, 2:] * directions
        return corners


class TissueSlide:
    """A slide of ``side`` x ``side`` pixels, with clusters of abnormal nuclei or without.

    Args:
        side: in pixels, a multiple of the tile.
        seed: of the data set.
        number: of the slide in it.
        abnormal: whether it has clusters of abnormal nuclei, up to four.
    """

    def __init__(self, side: int, *, seed: int, number: int, abnormal: bool) -> None:
        self.side = side
        self._key = seed, number
        rng = self._rng()
        self._white = rng.uniform(238, 247) + rng.uniform(-1.5, 1.5, 3)
        stains = np.array([_HAEMATOXYLIN, _EOSIN]) + rng.uniform(-0.05, 0.05, (2, 3))
        self._stains = (stains * rng.uniform(0.85, 1.15, (2, 1))).astype(np.float32)  # (2, 3)
        nodes = side // _COARSE + 3
        self._tissue = _lobes(rng, nodes)
        self._cellular = _noise(rng, nodes, 6)
        self._lymphoid = _noise(rng, nodes, 9)
        self._directions = np.stack([_noise(rng, nodes, 5) for _ in range(4)])
        self._rough = _noise(rng, side // _FINE + 3, 2)
        self._offsets = rng.integers(0, 1024, (6, 2)).tolist()
        self.clusters = self._place_clusters(rng) if abnormal else []
        self._cell = lru_cache(maxsize=4 * (side // TILE))(self._make_cell)

    def tile(self, column: int, row: int) -> Pixels:
        """The pixels of a tile, ``(256, 256, 3)``."""
        grain = self._texture(4, column, row)
        light = np.empty((TILE, TILE, 3), np.float32)
        light[:] = self._white
        light += grain[..., None] * 0.7
        inside = self._coarse(self._tissue, column, row)
        if inside.max() > -0.25:
            light *= np.exp(-self._absorbed(column, row, inside))
        return np.clip(np.rint(light), 0, 255).astype(np.uint8)

    def _absorbed(self, column: int, row: int, inside: Floats) -> Floats:
        """Optical density ``(256, 256, 3)``."""
        rough = _upsampled(self._rough, _FINE, column, row)
        texture = [self._texture(k, column, row) for k in range(6)]
        weights = np.exp(np.stack([self._coarse(f, column, row) for f in self._directions]) * 2.5)
        fibres = sum(w * t for w, t in zip(weights, texture[:4], strict=True)) / weights.sum(axis=0)
        clumps, grain = texture[5], texture[4]
        cellular = _step(self._coarse(self._cellular, column, row) + 0.15 * rough, -0.3, 0.5)
        edge = inside + _RAGGED * rough + 0.012 * clumps
        tissue = _step(edge, 0.0, 0.04)
        # Fibres come apart into clefts where there are few cells, and the rim is loose.
        loose = fibres + 0.5 * rough - cellular + 0.5 * _step(edge, 0.25, 0.0)
        tissue = tissue * (1 - 0.8 * _step(loose, 1.0, 1.7))
        eosin = 0.36 + 0.11 * fibres * (1 - 0.7 * cellular) + 0.05 * clumps + 0.03 * grain
        eosin = eosin * (1 - 0.25 * cellular)
        haematoxylin = 0.05 + 0.10 * cellular + 0.02 * clumps
        maps = np.stack([haematoxylin, eosin]) * tissue  # (2, 256, 256)
        self._stamp(maps[0], column, row)
        maps = np.maximum(maps, 0).astype(np.float32)
        density: Floats = np.tensordot(maps, self._stains, axes=(0, 0))  # (256, 256, 3)
        return density

    def _stamp(self, haematoxylin: Floats, column: int, row: int) -> None:
        """Put the nuclei of a tile and of the rims of its neighbours onto it."""
        padded = np.zeros((TILE + 4 * _REACH, TILE + 4 * _REACH), np.float32)
        parts = [
            self._cell(column + i, row + j) + (np.array([i, j, 0, 0, 0]) * TILE)
            for j in (-1, 0, 1)
            for i in (-1, 0, 1)
        ]
        nuclei = np.concatenate(parts)  # (n, 5) x, y, kind, sprite, strength
        near = ((nuclei[:, :2] > -_REACH) & (nuclei[:, :2] < TILE + _REACH)).all(axis=1)
        for x, y, kind, sprite, strength in nuclei[near].tolist():
            stamp = _sprites(int(kind))[int(sprite)]
            half = len(stamp) // 2
            left, top = round(x) + 2 * _REACH - half, round(y) + 2 * _REACH - half
            place = padded[top : top + len(stamp), left : left + len(stamp)]
            np.maximum(place, stamp * np.float32(strength), out=place)
        inner = slice(2 * _REACH, 2 * _REACH + TILE)
        haematoxylin += padded[inner, inner]

    def _make_cell(self, column: int, row: int) -> npt.NDArray[np.float64]:
        """Nuclei with their centre in a tile: ``(n, 5)`` x, y, kind, sprite and strength."""
        if not (0 <= column < self.side // TILE and 0 <= row < self.side // TILE):
            return np.empty((0, 5))
        rng = self._rng(column, row)
        lattice = np.stack(np.meshgrid(*[np.arange(0, TILE, _SPACING)] * 2), axis=-1).reshape(-1, 2)
        at = np.minimum(lattice + rng.uniform(0, _SPACING, lattice.shape), TILE - 1)  # (n, 2)
        chance, pick, sprite, strength = rng.random((4, len(at)))
        where = tuple(at.astype(int).T[::-1])
        inside = self._coarse(self._tissue, column, row)[where]
        inside += _RAGGED * _upsampled(self._rough, _FINE, column, row)[where]
        cellular = _step(self._coarse(self._cellular, column, row)[where], -0.3, 0.5)
        lymphoid = _step(self._coarse(self._lymphoid, column, row)[where], 1.25, 1.6)
        density = np.maximum(0.10 + 0.30 * cellular, 0.95 * lymphoid)
        kind = np.where(pick < 0.75 - 0.65 * cellular, _STROMAL, _ROUND)
        kind[pick > 0.996] = _REACTIVE
        kind[chance < 0.9 * lymphoid] = _LYMPHOCYTE
        keep = (chance < density) & (inside > 0.03)
        centres = at + np.array([column, row]) * TILE
        own = []
        for cluster in self.clusters:
            middle = cluster.nuclei[:, :2].mean(axis=0)
            radius = np.linalg.norm(cluster.nuclei[:, :2] - middle, axis=1).max() + 10
            keep &= np.linalg.norm(centres - middle, axis=1) > radius
            local = cluster.nuclei[:, :2] - np.array([column, row]) * TILE
            here = ((local >= 0) & (local < TILE)).all(axis=1)
            size = (cluster.nuclei[here, 2] - 9) / 5 * _SPRITES
            strong = rng.uniform(0.95, 1.15, int(here.sum()))
            own.append(np.column_stack([local[here], 0 * size + _ABNORMAL, size, strong]))
        usual = np.column_stack([at, kind, sprite * _SPRITES, 0.75 + 0.4 * strength])[keep]
        return np.concatenate([usual, *own])

    def _place_clusters(self, rng: np.random.Generator) -> list[Cluster]:
        """Up to four clusters well inside the tissue, away from each other."""
        step = self._tissue[1:-2, 1:-2]
        deep = np.argwhere(step > np.quantile(step, 0.85))  # (n, 2) row, column of nodes
        middles: list[npt.NDArray[np.float64]] = []
        for _ in range(int(rng.integers(2, 5))):
            for _ in range(20):
                middle = (deep[rng.integers(len(deep))][::-1] + rng.random(2)) * _COARSE
                middle = np.clip(middle, 100, self.side - 100)
                if all(np.linalg.norm(middle - other) > 6 * _COARSE for other in middles):
                    middles.append(middle)
                    break
        return [_cluster(rng, middle) for middle in middles]

    def _coarse(self, field: Floats, column: int, row: int) -> Floats:
        return _upsampled(field, _COARSE, column, row)

    def _texture(self, number: int, column: int, row: int) -> Floats:
        texture, period = _textures()[number]
        dx, dy = self._offsets[number]
        x, y = (column * TILE + dx) % period, (row * TILE + dy) % period
        return texture[y : y + TILE, x : x + TILE]

    def _rng(self, *key: int) -> np.random.Generator:
        seed, number = self._key
        return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(number, *key)))


def _cluster(rng: np.random.Generator, middle: npt.NDArray[np.float64]) -> Cluster:
    """Crowded large nuclei about a point, as many as find room."""
    spread = rng.uniform(40, 70, 2)
    turn = rng.uniform(0, np.pi)
    nuclei: list[tuple[float, float, float]] = []
    for _ in range(320):
        angle, far, radius = rng.uniform(0, 2 * np.pi), np.sqrt(rng.random()), rng.uniform(9, 13.9)
        u, v = spread * far * np.array([np.cos(angle), np.sin(angle)])
        x = middle[0] + u * np.cos(turn) - v * np.sin(turn)
        y = middle[1] + u * np.sin(turn) + v * np.cos(turn)
        if all((x - a) ** 2 + (y - b) ** 2 > (0.75 * (radius + c)) ** 2 for a, b, c in nuclei):
            nuclei.append((x, y, radius))
    return Cluster(np.array(nuclei))


def _lobes(rng: np.random.Generator, nodes: int) -> Floats:
    """Positive where there is tissue: a few ragged pieces that cover a third or so of the slide."""
    y, x = (np.mgrid[:nodes, :nodes] - 1) / (nodes - 3)  # a node lies before the slide, two after
    field = np.full((nodes, nodes), -9.0)
    for _ in range(rng.integers(1, 4)):
        cx, cy = rng.uniform(0.3, 0.7, 2)
        a, b = rng.uniform(0.2, 0.42, 2)
        turn = rng.uniform(0, np.pi)
        u, v = x - cx, y - cy
        along, across = u * np.cos(turn) + v * np.sin(turn), v * np.cos(turn) - u * np.sin(turn)
        field = np.maximum(field, 1 - np.hypot(along / a, across / b))
    field = field + 0.22 * _noise(rng, nodes, 9) + 0.10 * _noise(rng, nodes, 4)
    # Glass all around.
    limit = np.minimum.reduce([x, y, 1 - x, 1 - y]) * (nodes - 3) * _COARSE / 150 - 1
    field = np.minimum(field, limit)
    # A piece that came out small or large is grown or shrunk.
    wanted = rng.uniform(0.28, 0.42)
    if not 0.8 * wanted < (field > 0).mean() < 1.25 * wanted:
        field = np.minimum(field - np.quantile(field, 1 - wanted), limit)
    lobes: Floats = field.astype(np.float32)
    return lobes


def _noise(rng: np.random.Generator, nodes: int, wavelength: int) -> Floats:
    """Smooth noise of unit variance, ``(nodes, nodes)``, that changes over ``wavelength`` nodes."""
    few = nodes // wavelength + 4
    small = PILImage.fromarray(rng.standard_normal((few, few)).astype(np.float32))
    size = few * wavelength
    large = np.asarray(small.resize((size, size), PILImage.Resampling.BICUBIC))
    inner = slice(wavelength, wavelength + nodes)  # away from the edges, which repeat a value
    field: Floats = (large[inner, inner] / large.std()).astype(np.float32)
    return field


def _upsampled(field: Floats, step: int, column: int, row: int) -> Floats:
    """A tile of a field whose nodes are ``step`` pixels apart, by cubic splines."""
    weights = _spline(step)  # (256, k)
    k, per_tile = weights.shape[1], TILE // step
    y, x = row * per_tile, column * per_tile
    tile = weights @ field[y : y + k, x : x + k] @ weights.T
    return tile.astype(np.float32, copy=False)


@cache
def _spline(step: int) -> Floats:
    """``(256, k)`` weights of the k nodes about a tile at each of its pixels."""
    position = (np.arange(TILE) + 0.5) / step + 1
    distance = np.abs(position[:, None] - np.arange(TILE // step + 3))  # (256, k)
    near = 2 / 3 - distance**2 + distance**3 / 2
    far = np.maximum(2 - distance, 0) ** 3 / 6
    weights: Floats = np.where(distance < 1, near, far).astype(np.float32)
    return weights


@cache
def _textures() -> list[tuple[Floats, int]]:
    """Four directions of fibres, fine grain and clumps: each periodic, with its period.

    Different periods keep the eye from seeing any.
    """
    rng = np.random.default_rng(7)
    fibres = [_texture(rng, 448 + 64 * k, (16, 1.6), np.pi * k / 4 + 0.3) for k in range(4)]
    return [*fibres, _texture(rng, 416, (0.7, 0.7), 0), _texture(rng, 608, (3, 3), 0)]


def _texture(
    rng: np.random.Generator, period: int, scale: tuple[float, float], angle: float
) -> tuple[Floats, int]:
    """Noise of unit variance blurred by ``scale`` along and across ``angle``, one tile repeated."""
    frequency = 2 * np.pi * np.fft.fftfreq(period)
    v, u = np.meshgrid(frequency, frequency, indexing="ij")
    along, across = u * np.cos(angle) + v * np.sin(angle), v * np.cos(angle) - u * np.sin(angle)
    blur = np.exp(-((along * scale[0]) ** 2 + (across * scale[1]) ** 2) / 2)
    noise = np.fft.ifft2(np.fft.fft2(rng.standard_normal((period, period))) * blur).real
    noise = noise / noise.std()
    return np.pad(noise, (0, TILE), mode="wrap").astype(np.float32), period


@cache
def _sprites(kind: int) -> list[Floats]:
    """How much haematoxylin nuclei of a kind hold; abnormal ones from small to large."""
    rng = np.random.default_rng([11, kind])
    return [_nucleus(rng, kind, (i + 0.5) / _SPRITES) for i in range(_SPRITES)]


def _nucleus(rng: np.random.Generator, kind: int, size: float) -> Floats:
    """One stamp: an outline, chromatin in it, and nucleoli in those that have them."""
    spread = rng.random()
    long, short, depth, uneven = (
        (6.5 + 4 * spread, 2.0 + spread, 0.62, 0.05),
        (5.2 + 1.6 * spread, 4.4 + 1.4 * spread, 0.55, 0.05),
        (3.9 + 0.8 * spread, 3.7 + 0.8 * spread, 0.90, 0.03),
        (7.2 + 1.5 * spread, 6.0 + 1.2 * spread, 0.50, 0.05),
        (9 + 5 * size, (9 + 5 * size) * (0.65 + 0.3 * spread), 0.80, 0.11),
    )[kind]
    half = int(np.ceil(long * 1.25)) + 2
    y, x = np.mgrid[-half : half + 1, -half : half + 1].astype(np.float64)
    turn = rng.uniform(0, np.pi)
    u, v = x * np.cos(turn) + y * np.sin(turn), y * np.cos(turn) - x * np.sin(turn)
    angle = np.arctan2(v, u)
    outline = 1 + sum(
        uneven * rng.standard_normal() / np.sqrt(k) * np.cos(k * angle + rng.uniform(0, 6.3))
        for k in (2, 3, 4, 5)
    )
    ratio = np.hypot(u / long, v / short) / np.clip(outline, 0.6, 1.4)
    inside = np.clip((1 - ratio) * short / 1.6 + 0.5, 0, 1)
    clumps, _ = _textures()[5]
    grain, _ = _textures()[4]
    top, left = rng.integers(0, 500, 2)
    patch = slice(top, top + 2 * half + 1), slice(left, left + 2 * half + 1)
    chromatin = 1 + 0.12 * clumps[patch] + 0.10 * grain[patch] + 0.18 * (ratio**2 - 0.5)
    if kind in (_REACTIVE, _ABNORMAL):
        for _ in range(rng.integers(1, 3)):
            cx, cy = rng.uniform(-0.4, 0.4, 2) * short
            chromatin = chromatin + 0.45 * np.exp(-((u - cx) ** 2 + (v - cy) ** 2) / 5)
    stamp: Floats = (inside * depth * np.clip(chromatin, 0.4, 1.8)).astype(np.float32)
    return stamp


def _step(values: Floats, start: float, stop: float) -> Floats:
    """From 0 at ``start`` to 1 at ``stop``, smoothly."""
    t: Floats = np.clip((values - start) / np.float32(stop - start), 0, 1)
    return t * t * (3 - 2 * t)
