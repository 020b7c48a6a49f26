"""Convert transparency, CMYK and palettes to grey or RGB."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ips.images.image import Pixels


def over(pixels: Pixels, background: int) -> Pixels:
    """Blend pixels whose last channel is opacity with a uniform ``background``.

    >>> over(np.array([[[200, 100, 0, 255], [200, 100, 0, 0]]], np.uint8), 255).tolist()
    [[[200, 100, 0], [255, 255, 255]]]
    """
    colour, alpha = pixels[..., :-1], pixels[..., -1:]
    if alpha.min(initial=255) == 255:
        return colour
    opacity = alpha.astype(np.uint16)
    mixed = colour * opacity + np.uint16(background) * (255 - opacity) + 127
    return (mixed // 255).astype(np.uint8)


def premultiplied_over(pixels: Pixels, background: int) -> Pixels:
    """Like ``over``, for colour that is already multiplied by its opacity (premultiplied alpha).

    >>> premultiplied_over(np.array([[[200, 100, 0, 255], [0, 0, 0, 0]]], np.uint8), 255).tolist()
    [[[200, 100, 0], [255, 255, 255]]]
    """
    colour, alpha = pixels[..., :-1], pixels[..., -1:]
    if background == 0:
        return colour
    light = (np.uint16(background) * (255 - alpha.astype(np.uint16)) + 127) // 255
    return np.minimum(colour + light, 255).astype(np.uint8)


def cmyk_to_rgb(pixels: Pixels) -> Pixels:
    """Convert CMYK ``(h, w, 4)`` to RGB."""
    light = 255 - pixels.astype(np.uint16)
    return ((light[..., :3] * light[..., 3:] + 127) // 255).astype(np.uint8)


def palette_to_rgb(indices: Pixels, colormap: npt.NDArray[Any]) -> Pixels:
    """Look up indices ``(h, w, 1)`` in a 16-bit TIFF colour map ``(3, 256)``."""
    table = (colormap >> 8).astype(np.uint8).T  # (256, 3)
    return table[indices[..., 0]]
