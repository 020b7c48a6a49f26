"""Colour jitter and translation of a picture, for photographs of traffic signs.

What is drawn is kept apart from what is done with it: a draw is a few numbers that travel to
whichever process decodes the picture.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image as PILImage
from PIL import ImageEnhance

JITTER = 0.1
MOST_SHIFT = 100


@dataclass(frozen=True)
class Augmentation:
    """What is done to one picture; colour as torchvision's ``ColorJitter`` understands it.

    Args:
        brightness: a factor, 1 leaves the picture as it is.
        contrast: a factor.
        saturation: a factor.
        hue: by how much of the colour circle colours are turned, 0 leaves them as they are.
        order: in which these four are done, numbered as they stand here.
        shift: by how many pixels to the right and down; what comes in is black.
    """

    brightness: float
    contrast: float
    saturation: float
    hue: float
    order: tuple[int, ...]
    shift: tuple[int, int]

    def apply(self, picture: PILImage.Image) -> PILImage.Image:
        """An RGB picture of the same size."""
        for step in self.order:
            if step == 0:
                picture = ImageEnhance.Brightness(picture).enhance(self.brightness)
            elif step == 1:
                picture = ImageEnhance.Contrast(picture).enhance(self.contrast)
            elif step == 2:
                picture = ImageEnhance.Color(picture).enhance(self.saturation)
            else:
                picture = _turn_hue(picture, self.hue)
        moved = PILImage.new("RGB", picture.size)
        moved.paste(picture, self.shift)
        return moved


def draw_augmentation(rng: np.random.Generator) -> Augmentation:
    """Factors within 0.1 of 1, a hue within 0.1 of 0, any order, up to 100 px each way."""
    # Plain random numbers only: they are the least likely to differ between versions of numpy.
    brightness, contrast, saturation, hue = (JITTER * (2 * rng.random(4) - 1)).tolist()
    x, y = rng.integers(-MOST_SHIFT, MOST_SHIFT, size=2, endpoint=True).tolist()
    return Augmentation(
        brightness=1 + brightness,
        contrast=1 + contrast,
        saturation=1 + saturation,
        hue=hue,
        order=tuple(np.argsort(rng.random(4)).tolist()),
        shift=(x, y),
    )


def _turn_hue(picture: PILImage.Image, turn: float) -> PILImage.Image:
    hue, saturation, value = picture.convert("HSV").split()
    steps = int(turn * 255)
    turned = hue.point([(level + steps) % 256 for level in range(256)])
    return PILImage.merge("HSV", (turned, saturation, value)).convert("RGB")
