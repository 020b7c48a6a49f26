"""Turn stored values into grey, RGB or bands of 8 bits.

Values deeper than 8 bits become ``value * 255 / white``, rounded, and at most 255. ``white`` is the
same for all images of a data set, so that equal values stay equal: an image is never stretched to
its own darkest and brightest pixel.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ips.errors import ImageError
from ips.images.image import Pixels

Channels = Literal["rgb", "grey", "as-is"]

_COUNTS: dict[Channels, int] = {"rgb": 3, "grey": 1}
# Weights of red, green and blue in grey (ITU-R 601-2), as Pillow has them.
_LUMA, _LUMA_BITS = (19_595, 38_470, 7_471), 16


def channel_count(stored: int, channels: Channels) -> int:
    """Number of channels of an image with ``stored`` channels, after `to_channels`."""
    return _COUNTS.get(channels, stored)


def channels_of(stored: int) -> Channels:
    """The kind of images with ``stored`` channels.

    >>> channels_of(3), channels_of(5)
    ('rgb', 'as-is')
    """
    return next((kind for kind, count in _COUNTS.items() if count == stored), "as-is")


def to_channels(pixels: Pixels, channels: Channels) -> Pixels:
    """Convert ``(..., C)`` pixels to RGB or grey; the result may be a read-only view.

    Of an image of more than three bands, the first three count as red, green and blue; of one of
    two bands, the first counts as grey.

    >>> to_channels(np.array([[7]], np.uint8), "rgb").tolist()
    [[7, 7, 7]]
    >>> to_channels(np.array([[255, 0, 0]], np.uint8), "grey").tolist()
    [[76]]
    """
    stored = pixels.shape[-1]
    if stored == channel_count(stored, channels):
        return pixels
    if stored < 3:
        return np.broadcast_to(pixels[..., :1], (*pixels.shape[:-1], _COUNTS[channels]))
    if channels == "rgb":
        return pixels[..., :3]
    grey = np.full((*pixels.shape[:-1], 1), 1 << (_LUMA_BITS - 1), np.uint32)
    for band, weight in enumerate(_LUMA):
        grey += pixels[..., band, None] * np.uint32(weight)
    grey >>= _LUMA_BITS
    return grey.astype(np.uint8)


def as_rgb(pixels: Pixels) -> Pixels:
    """Return ``(h, w, C)`` pixels as a contiguous array ``(h, w, 3)``, to show them."""
    return np.ascontiguousarray(to_channels(pixels, "rgb"))


def white_level(
    dtype: np.dtype[Any],
    *,
    name: str,
    bits: int | None = None,
    stated: float | None = None,
    white: float | None = None,
) -> float | None:
    """The stored value that becomes 255; None if values are 8-bit and stay as they are.

    Args:
        dtype: type of the stored values.
        name: name of the image in messages.
        bits: bits of a value, if these are not all bits of the type.
        stated: largest possible value according to the file.
        white: the setting, for values deeper than 8 bits; by default ``stated``, or else the
            largest value of as many bits, up to 16. Deeper values need it.

    >>> white_level(np.dtype("uint16"), name="a.png")
    65535.0
    """
    depth = 8 * dtype.itemsize
    bits = 1 if dtype.kind == "b" else min(bits or depth, depth)
    if dtype.kind in "bu" and bits <= 8:
        return None if bits == 8 else 2.0**bits - 1
    if dtype.kind in "uif" and white is not None:
        return white
    if dtype.kind == "u" and bits <= 16:
        return stated or 2.0**bits - 1
    if dtype.kind in "uif":
        raise ImageError(
            f"{name} is {dtype}, whose white is not known: set patches.white to the value that "
            "becomes 255, or save the image as uint8"
        )
    raise ImageError(
        f"{name} is {dtype}, which is not read: scale it to 0 to 255 and save it as uint8"
    )


def to_bytes(
    values: npt.NDArray[Any], white: float | None, *, alpha: float | None = None
) -> Pixels:
    """Scale stored values ``(..., C)`` to 8 bits; None leaves 8-bit values as they are.

    Args:
        values: integers or floats; negative values and NaN become 0.
        white: value that becomes 255, see `white_level`.
        alpha: value of full opacity, if the last channel is opacity.

    >>> to_bytes(np.array([0, 2048, 4095, 65535], np.uint16), 4095).tolist()
    [0, 128, 255, 255]
    """
    if white is None:
        return values
    if alpha is not None:
        parts = [to_bytes(values[..., :-1], white), to_bytes(values[..., -1:], alpha)]
        return np.concatenate(parts, axis=-1)
    if values.dtype.kind in "bu" and values.dtype.itemsize <= 2:
        index = values.astype(np.uint8) if values.dtype.kind == "b" else values
        return np.asarray(_scaled(white)[index])
    numbers = np.nan_to_num(values.astype(np.float64), nan=0.0)
    scaled = np.rint(np.clip(numbers * (255 / white), 0, 255))
    return np.asarray(scaled, dtype=np.uint8)


@lru_cache(maxsize=8)
def _scaled(white: float) -> Pixels:
    """The byte of every 16-bit value."""
    scaled = np.rint(np.minimum(np.arange(2**16) * (255 / white), 255))
    return np.asarray(scaled, dtype=np.uint8)


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
