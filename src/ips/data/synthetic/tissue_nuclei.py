"""Nuclei of drawn tissue: sprites of each kind, and clusters of abnormal nuclei."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import numpy.typing as npt

from ips.data.synthetic.tissue_noise import CLUMPS, GRAIN, Floats, textures

STROMAL, ROUND, LYMPHOCYTE, REACTIVE, ABNORMAL = range(5)

SPRITES = 40
"""Number of sprites of each kind."""


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
    """Random large nuclei around a point, as many as fit."""
    spread = rng.uniform(40, 70, 2)
    turn = rng.uniform(0, np.pi)
    nuclei: list[tuple[float, float, float]] = []
    for _ in range(320):
        angle, far, radius = rng.uniform(0, 2 * np.pi), np.sqrt(rng.random()), rng.uniform(9, 13.9)
        u, v = spread * far * np.array([np.cos(angle), np.sin(angle)])
        x = centre[0] + u * np.cos(turn) - v * np.sin(turn)
        y = centre[1] + u * np.sin(turn) + v * np.cos(turn)
        if all((x - a) ** 2 + (y - b) ** 2 > (0.75 * (radius + c)) ** 2 for a, b, c in nuclei):
            nuclei.append((x, y, radius))
    return Cluster(np.array(nuclei))


@cache
def nucleus_sprites(kind: int) -> list[Floats]:
    """Haematoxylin maps of nuclei of a kind; abnormal ones are sorted from small to large."""
    rng = np.random.default_rng([11, kind])
    return [_nucleus(rng, kind, (i + 0.5) / SPRITES) for i in range(SPRITES)]


def _nucleus(rng: np.random.Generator, kind: int, size: float) -> Floats:
    """Haematoxylin of one nucleus: outline, chromatin, and nucleoli for some kinds."""
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
    clumps, _ = textures()[CLUMPS]
    grain, _ = textures()[GRAIN]
    top, left = rng.integers(0, 500, 2)
    patch = slice(top, top + 2 * half + 1), slice(left, left + 2 * half + 1)
    chromatin = 1 + 0.12 * clumps[patch] + 0.10 * grain[patch] + 0.18 * (ratio**2 - 0.5)
    if kind in (REACTIVE, ABNORMAL):
        for _ in range(rng.integers(1, 3)):
            cx, cy = rng.uniform(-0.4, 0.4, 2) * short
            chromatin = chromatin + 0.45 * np.exp(-((u - cx) ** 2 + (v - cy) ** 2) / 5)
    sprite: Floats = (inside * depth * np.clip(chromatin, 0.4, 1.8)).astype(np.float32)
    return sprite
