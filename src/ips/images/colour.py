"""From what files hold (transparency, ink, palettes) to grey or RGB."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ips.images.image import Pixels


def over(pixels: Pixels, background: int) -> Pixels:
    """Pixels whose last channel is opacity, laid over an even ``background``.

    >>> over(np.array([[[200, 100, 0, 255], [200, 100, 0, 0]]], np.uint8), 255).tolist()
    [[[200, 100, 0], [255, 255, 255]]]
    """
    colour, alpha = pixels[..., :-1], pixels[..., -1:]
    if alpha.min(initial=255) == 255:
        return colour
    opacity = alpha.astype(np.uint16)
    mixed = colour * opacity + np.uint16(background) * (255 - opacity) + 127
    return (mixed // 255).astype(np.uint8)


def multiplied_over(pixels: Pixels, background: int) -> Pixels:
    """As ``over``, for colour that was multiplied by its opacity already.

    >>> multiplied_over(np.array([[[200, 100, 0, 255], [0, 0, 0, 0]]], np.uint8), 255).tolist()
    [[[200, 100, 0], [255, 255, 255]]]
    """
    colour, alpha = pixels[..., :-1], pixels[..., -1:]
    if background == 0:
        return colour
    light = (np.uint16(background) * (255 - alpha.astype(np.uint16)) + 127) // 255
    return np.minimum(colour + light, 255).astype(np.uint8)


def ink_to_rgb(pixels: Pixels) -> Pixels:
    """Cyan, magenta, yellow and black ink ``(h, w, 4)`` on white paper."""
    light = 255 - pixels.astype(np.uint16)
    return ((light[..., :3] * light[..., 3:] + 127) // 255).astype(np.uint8)


def palette_to_rgb(indices: Pixels, colormap: npt.NDArray[Any]) -> Pixels:
    """Colour numbers ``(h, w, 1)`` looked up in a TIFF colour map ``(3, 256)`` of 16 bits."""
    table = (colormap >> 8).astype(np.uint8).T  # (256, 3)
    return table[indices[..., 0]]
