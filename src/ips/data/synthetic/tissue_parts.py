"""Parts of synthetic tissue: noise fields, periodic textures and nuclei.

Noise fields are sampled on a coarse grid and interpolated with cubic splines, tile by tile. Lengths
are in pixels. Sizes, stain densities and weights are chosen by eye, to resemble tissue stained with
haematoxylin and eosin; any change of a number or of the order of random draws changes the slides.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import numpy.typing as npt
from PIL import Image as PILImage

Floats = npt.NDArray[np.float32]

TILE = 256
"""Side of a tile in pixels."""

GRAIN, CLUMPS = 4, 5
"""Indices into `textures`; the first four are fibres."""

STROMAL, ROUND, LYMPHOCYTE, REACTIVE, ABNORMAL = range(5)
"""Kinds of nuclei."""

SPRITES = 40
"""Number of sprites (small images of one nucleus) of each kind."""


def smooth_noise(rng: np.random.Generator, nodes: int, wavelength: int) -> Floats:
    """Smooth noise ``(nodes, nodes)`` of unit variance with the given wavelength in nodes."""
    samples = nodes // wavelength + 4  # includes a margin on each side
    small = PILImage.fromarray(rng.standard_normal((samples, samples)).astype(np.float32))
    size = samples * wavelength
    large = np.asarray(small.resize((size, size), PILImage.Resampling.BICUBIC))
    inner = slice(wavelength, wavelength + nodes)  # without the border, where values repeat
    field: Floats = (large[inner, inner] / large.std()).astype(np.float32)
    return field


def upsample(field: Floats, step: int, column: int, row: int) -> Floats:
    """Interpolate a tile of a field whose nodes are ``step`` pixels apart."""
    weights = _spline(step)  # (256, k)
    k, per_tile = weights.shape[1], TILE // step
    y, x = row * per_tile, column * per_tile
    tile = weights @ field[y : y + k, x : x + k] @ weights.T
    return tile.astype(np.float32, copy=False)


@cache
def _spline(step: int) -> Floats:
    """Cubic B-spline weights ``(256, k)`` of the k nodes around a tile for each of its pixels."""
    position = (np.arange(TILE) + 0.5) / step + 1
    distance = np.abs(position[:, None] - np.arange(TILE // step + 3))  # (256, k)
    near = 2 / 3 - distance**2 + distance**3 / 2
    far = np.maximum(2 - distance, 0) ** 3 / 6
    weights: Floats = np.where(distance < 1, near, far).astype(np.float32)
    return weights


@cache
def textures() -> list[tuple[Floats, int]]:
    """Periodic textures with their periods: fibres in four directions, fine grain, and clumps.

    The periods differ, so that the repetition is not visible.
    """
    rng = np.random.default_rng(7)  # the same textures in every slide
    fibres = [_texture(rng, 448 + 64 * k, (16, 1.6), np.pi * k / 4 + 0.3) for k in range(4)]
    grain, clumps = _texture(rng, 416, (0.7, 0.7), 0), _texture(rng, 608, (3, 3), 0)
    return [*fibres, grain, clumps]


def _texture(
    rng: np.random.Generator, period: int, scale: tuple[float, float], angle: float
) -> tuple[Floats, int]:
    """Periodic noise of unit variance, blurred by ``scale`` along and across ``angle``."""
    frequency = 2 * np.pi * np.fft.fftfreq(period)
    v, u = np.meshgrid(frequency, frequency, indexing="ij")
    along, across = u * np.cos(angle) + v * np.sin(angle), v * np.cos(angle) - u * np.sin(angle)
    blur = np.exp(-((along * scale[0]) ** 2 + (across * scale[1]) ** 2) / 2)
    noise = np.fft.ifft2(np.fft.fft2(rng.standard_normal((period, period))) * blur).real
    noise = noise / noise.std()
    return np.pad(noise, (0, TILE), mode="wrap").astype(np.float32), period


def smooth_step(values: Floats, start: float, stop: float) -> Floats:
    """Smooth transition from 0 at ``start`` to 1 at ``stop``."""
    t: Floats = np.clip((values - start) / np.float32(stop - start), 0, 1)
    return t * t * (3 - 2 * t)


@dataclass(frozen=True)
class Cluster:
    """A group of abnormal nuclei: ``(n, 3)`` centres x, y and radii in pixels."""

    nuclei: npt.NDArray[np.float64]

    @cached_property
    def outline(self) -> npt.NDArray[np.float64]:
        """Convex polygon around the nuclei, ``(32, 2)``."""
        angles = np.linspace(0, 2 * np.pi, 32, endpoint=False)
        directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)  # (32, 2)
        reach = directions @ self.nuclei[:, :2].T + self.nuclei[:, 2]  # (32, n)
        outermost = self.nuclei[reach.argmax(axis=1)]  # (32, 3)
        corners: npt.NDArray[np.float64] = outermost[:, :2] + outermost[:, 2:] * directions
        return corners


def draw_cluster(rng: np.random.Generator, centre: npt.NDArray[np.float64]) -> Cluster:
    """Place large nuclei at random in an ellipse around a point, with little overlap."""
    semi_axes = rng.uniform(40, 70, 2)
    tilt = rng.uniform(0, np.pi)
    nuclei: list[tuple[float, float, float]] = []
    for _ in range(320):  # enough attempts to fill the ellipse
        angle, rho, radius = rng.uniform(0, 2 * np.pi), np.sqrt(rng.random()), rng.uniform(9, 13.9)
        u, v = semi_axes * rho * np.array([np.cos(angle), np.sin(angle)])
        x = centre[0] + u * np.cos(tilt) - v * np.sin(tilt)
        y = centre[1] + u * np.sin(tilt) + v * np.cos(tilt)
        # Accept a nucleus if its distance to every other one is above 75 % of the sum of the radii.
        if all((x - a) ** 2 + (y - b) ** 2 > (0.75 * (radius + c)) ** 2 for a, b, c in nuclei):
            nuclei.append((x, y, radius))
    return Cluster(np.array(nuclei))


@cache
def nucleus_sprites(kind: int) -> list[Floats]:
    """Haematoxylin stain of nuclei of one kind; abnormal ones are sorted from small to large."""
    rng = np.random.default_rng([11, kind])
    return [_nucleus(rng, kind, (i + 0.5) / SPRITES) for i in range(SPRITES)]


def _nucleus(rng: np.random.Generator, kind: int, size: float) -> Floats:
    """Haematoxylin stain of one nucleus; only abnormal ones depend on ``size``, from 0 to 1."""
    variation = rng.random()
    # Long and short semi-axis, density of the stain, and irregularity of the outline.
    long, short, darkness, roughness = {
        STROMAL: (6.5 + 4 * variation, 2.0 + variation, 0.62, 0.05),
        ROUND: (5.2 + 1.6 * variation, 4.4 + 1.4 * variation, 0.55, 0.05),
        LYMPHOCYTE: (3.9 + 0.8 * variation, 3.7 + 0.8 * variation, 0.90, 0.03),
        REACTIVE: (7.2 + 1.5 * variation, 6.0 + 1.2 * variation, 0.50, 0.05),
        ABNORMAL: (9 + 5 * size, (9 + 5 * size) * (0.65 + 0.3 * variation), 0.80, 0.11),
    }[kind]
    half = int(np.ceil(long * 1.25)) + 2  # room for a rough outline
    y, x = np.mgrid[-half : half + 1, -half : half + 1].astype(np.float64)
    tilt = rng.uniform(0, np.pi)
    u, v = x * np.cos(tilt) + y * np.sin(tilt), y * np.cos(tilt) - x * np.sin(tilt)
    angle = np.arctan2(v, u)
    # Radius relative to the ellipse: waves of random phase along the outline.
    outline = 1 + sum(
        roughness * rng.standard_normal() / np.sqrt(k) * np.cos(k * angle + rng.uniform(0, 6.3))
        for k in (2, 3, 4, 5)
    )
    ratio = np.hypot(u / long, v / short) / np.clip(outline, 0.6, 1.4)  # 1 on the outline
    inside = np.clip((1 - ratio) * short / 1.6 + 0.5, 0, 1)  # soft edge, 1.6 pixels wide
    clumps, _ = textures()[CLUMPS]
    grain, _ = textures()[GRAIN]
    top, left = rng.integers(0, 500, 2)  # of a random crop of both textures
    crop = slice(top, top + 2 * half + 1), slice(left, left + 2 * half + 1)
    chromatin = 1 + 0.12 * clumps[crop] + 0.10 * grain[crop] + 0.18 * (ratio**2 - 0.5)
    if kind in (REACTIVE, ABNORMAL):
        for _ in range(rng.integers(1, 3)):  # one or two nucleoli
            cx, cy = rng.uniform(-0.4, 0.4, 2) * short
            chromatin = chromatin + 0.45 * np.exp(-((u - cx) ** 2 + (v - cy) ** 2) / 5)
    sprite: Floats = (inside * darkness * np.clip(chromatin, 0.4, 1.8)).astype(np.float32)
    return sprite
