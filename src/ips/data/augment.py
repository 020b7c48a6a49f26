"""Colour jitter and translation of images, for the Swedish traffic signs.

The random numbers are drawn apart from the image, because another process may decode it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image as PILImage
from PIL import ImageEnhance

JITTER = 0.1
MAX_SHIFT = 100


@dataclass(frozen=True)
class Augmentation:
    """Colour changes as in torchvision's ``ColorJitter``, then a translation.

    Args:
        brightness, contrast, saturation: factors, 1 for no change.
        hue: rotation as a fraction of the colour circle, 0 for no change.
        order: order of these four changes, numbered as above.
        shift: translation to the right and down in pixels; the gap is black.
    """

    brightness: float
    contrast: float
    saturation: float
    hue: float
    order: tuple[int, ...]
    shift: tuple[int, int]

    def apply(self, picture: PILImage.Image) -> PILImage.Image:
        """Augmented RGB image of the same size."""
        enhancers = ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color
        factors = self.brightness, self.contrast, self.saturation
        for step in self.order:
            if step < 3:
                picture = enhancers[step](picture).enhance(factors[step])
            else:
                picture = _rotate_hue(picture, self.hue)
        moved = PILImage.new("RGB", picture.size)
        moved.paste(picture, self.shift)
        return moved


def draw_augmentation(rng: np.random.Generator) -> Augmentation:
    """Random factors within 0.1 of 1, hue within 0.1 of 0, any order, shifts up to 100 px."""
    # Uniform numbers only: they are the least likely to differ between versions of numpy.
    brightness, contrast, saturation, hue = (JITTER * (2 * rng.random(4) - 1)).tolist()
    x, y = rng.integers(-MAX_SHIFT, MAX_SHIFT, size=2, endpoint=True).tolist()
    return Augmentation(
        brightness=1 + brightness,
        contrast=1 + contrast,
        saturation=1 + saturation,
        hue=hue,
        order=tuple(np.argsort(rng.random(4)).tolist()),
        shift=(x, y),
    )


def _rotate_hue(picture: PILImage.Image, turn: float) -> PILImage.Image:
    hue, saturation, value = picture.convert("HSV").split()
    steps = int(turn * 255)
    turned = hue.point([(level + steps) % 256 for level in range(256)])
    return PILImage.merge("HSV", (turned, saturation, value)).convert("RGB")
