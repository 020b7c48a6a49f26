"""Textures of road images, computed once per process from a fixed seed.

Bytes are signed, stored as uint8: adding one to a colour wraps around to the right value.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
from PIL import Image

Pixels = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

HEADROOM = 12
"""Largest absolute value of the sensor noise."""

_SEED = 1


@lru_cache(maxsize=6)
def sensor_noise(size: int, strength: int) -> Pixels:
    """Sensor noise as ``2 * size`` signed bytes; an image of ``size`` bytes takes a random part."""
    noise = np.random.default_rng(_SEED).standard_normal(2 * size, dtype=np.float32)
    noise = np.rint(0.75 * strength * noise).clip(-HEADROOM, HEADROOM)
    signed: Pixels = noise.astype(np.int8).view(np.uint8)
    return signed


@lru_cache(maxsize=1)
def cloud_noise() -> Floats:
    """Smooth fractal noise around 0, ``(512, 1024)``."""
    rng = np.random.default_rng(_SEED)
    total = np.zeros((512, 1024), dtype=np.float32)
    for octave in range(2, 8):
        coarse = Image.fromarray(rng.random((2**octave, 2 ** (octave + 1)), dtype=np.float32))
        total += np.asarray(coarse.resize((1024, 512), Image.Resampling.BICUBIC)) * 0.6**octave
    total -= total.mean()
    noise: Floats = total / (2 * total.std())
    return noise


@lru_cache(maxsize=6)
def ground_texture(height: int, width: int, halvings: int) -> Pixels:
    """Texture of the ground, signed bytes ``(height, 2 * width, 3)``, from far to near.

    The contrast is halved once for leaves, twice for asphalt and not at all for grass.
    """
    rng = np.random.default_rng(_SEED)
    size = 2 * width, height
    total = np.zeros((height, 2 * width), dtype=np.float32)
    for fine in (1, 2, 5, 14):
        # Near tufts are larger, because rows are closer together far away.
        row = np.rint((height - 1) / fine * np.linspace(0, 1, height) ** 0.6).astype(np.int64)
        coarse = rng.standard_normal((row[-1] + 1, size[0] // fine), dtype=np.float32)
        total += np.asarray(Image.fromarray(coarse[row]).resize(size, Image.Resampling.BILINEAR))
    strength = total[..., None] * np.array([7.0, 7.0, 5.0], dtype=np.float32) / 2**halvings
    texture: Pixels = np.clip(np.rint(strength), -40, 40).astype(np.int8).view(np.uint8)
    return texture
