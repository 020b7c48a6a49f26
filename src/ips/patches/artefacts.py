"""What is no tissue on a stained slide although it is darker than glass: ink, and blurred regions.

Letters: k patches, C channels.
"""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt
import torch.nn.functional as F
from PIL import Image as PILImage
from PIL import ImageFilter
from torch import Tensor

from ips.images.image import Pixels

Bools = npt.NDArray[np.bool_]

# Colours of felt pens by hue in degrees, least saturation from 0 to 1, and least value. The stains
# of tissue are pink, red, brown and purple, or pale blue.
_INKS = ((70, 170, 0.15, 0.0), (170, 200, 0.25, 0.0), (200, 245, 0.5, 0.0), (345, 375, 0.8, 0.5))
# Black ink, in grey values: tissue is hardly ever as dark, and has a colour.
_BLACK, _COLOURLESS = 70, 30
_RIM = 5  # pixels, odd: the edge of a line is paler than the line

# Detail is measured at these pixel sizes: single pixels have more noise than detail.
_FINE, _COARSE = 2, 8
#: Smallest side of patches whose focus can be judged.
SMALLEST = 4 * _COARSE
# Blurred patches have less than this share of the sharpness that a quarter of the patches exceeds.
_BLURRED, _SHARP = 0.25, 0.75


def is_ink(pixels: Pixels) -> Bools:
    """Which pixels ``(h, w, 3)`` are marks of a felt pen or next to one, ``(h, w)``."""
    ink = _ink_table()[tuple((pixels >> 3).transpose(2, 0, 1))]
    grown = PILImage.fromarray(ink).convert("L").filter(ImageFilter.MaxFilter(_RIM))
    return np.asarray(grown) > 0


def blurred(sharpness: Sequence[float]) -> Bools:
    """Which patches are out of focus, compared with sharp patches of the slide."""
    values = np.asarray(sharpness)
    low: Bools = values < _BLURRED * np.quantile(values, _SHARP)
    return low


def sharpness(patches: Tensor) -> list[float]:
    """Fine detail of patches ``(k, C, h, w)`` by their coarse detail.

    The ratio depends neither on the strength of a stain nor on the share of glass in a patch.
    """
    grey = patches.float().mean(dim=1, keepdim=True)  # (k, 1, h, w)
    fine, coarse = (_detail(F.avg_pool2d(grey, size)) for size in (_FINE, _COARSE))
    values: list[float] = (fine / coarse.clamp(min=1.0)).tolist()
    return values


def _detail(grey: Tensor) -> Tensor:
    """Mean square ``(k,)`` of the difference between a pixel and the mean of its neighbours."""
    cross = grey.new_tensor([[0.0, 0.25, 0.0], [0.25, -1.0, 0.25], [0.0, 0.25, 0.0]])
    return F.conv2d(grey, cross[None, None]).square().mean(dim=(1, 2, 3))


@cache
def _ink_table() -> Bools:
    """Which colours are ink, ``(32, 32, 32)``."""
    table = np.zeros((32, 32, 32), bool)
    for place in np.ndindex(table.shape):
        red, green, blue = ((8 * part + 4) / 255 for part in place)
        hue, saturation, value = colorsys.rgb_to_hsv(red, green, blue)
        degrees = 360 * hue
        black = 255 * value < _BLACK and 255 * saturation * value < _COLOURLESS
        table[place] = black or any(
            low <= turned < high and saturation >= pale and value >= dark
            for low, high, pale, dark in _INKS
            for turned in (degrees, degrees + 360)
        )
    return table
