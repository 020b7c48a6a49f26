"""Noise fields and periodic textures of drawn tissue.

Fields are given at nodes some pixels apart and interpolated with cubic splines, tile by tile.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
from PIL import Image as PILImage

Floats = npt.NDArray[np.float32]

TILE = 256
"""Side of a tile in pixels."""

GRAIN, CLUMPS = 4, 5
"""Indices into `textures`; the first four are fibres."""


def smooth_noise(rng: np.random.Generator, nodes: int, wavelength: int) -> Floats:
    """Smooth noise ``(nodes, nodes)`` of unit variance with the given wavelength in nodes."""
    few = nodes // wavelength + 4
    small = PILImage.fromarray(rng.standard_normal((few, few)).astype(np.float32))
    size = few * wavelength
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
    """Weights ``(256, k)`` of the k nodes around a tile for each of its pixels."""
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
    rng = np.random.default_rng(7)
    fibres = [_texture(rng, 448 + 64 * k, (16, 1.6), np.pi * k / 4 + 0.3) for k in range(4)]
    return [*fibres, _texture(rng, 416, (0.7, 0.7), 0), _texture(rng, 608, (3, 3), 0)]


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
