"""Noise patterns of megapixel MNIST: cells of 28 x 28 px, drawn once per split into a bank.

An image picks its noise from the bank of its split, with replacement.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from ips.data.synthetic.digits import DIGIT_SIDE, Pixels

NoiseStyle = Literal["lines", "strokes"]

# Lines, as published: one pixel wide, from a corner, at 0 to 72 degrees, a grey value per pixel.
_STEEPEST = np.pi / 2.5
_POINTS = 2 * DIGIT_SIDE  # sampled along a line
_REACH = DIGIT_SIDE - 0.51  # largest coordinate that rounds to a pixel of the cell
_MIRROR = 33  # per cent
_GREYS = 204, 255  # 0.8 to 1, 1 excluded

# Strokes: as wide as a pen stroke in MNIST, and from a bank too large to learn by heart.
_STROKE_BANK = 4096
_WIDTH = 2.5  # px
_LARGEST_SHIFT = 6  # px from the centre of the cell


def draw_noise_bank(rng: np.random.Generator, *, style: NoiseStyle, noise: int) -> Pixels:
    """The noise patterns of a split, for images with ``noise`` patterns each.

    Args:
        style: ``lines`` are the published noise: as many patterns as an image has, each of two thin
            lines. ``strokes`` are harder to tell from digits: thousands of patterns, each of two
            thick strokes.
    """
    if style == "lines":
        return _draw_lines(rng, noise)
    return _draw_strokes(rng, _STROKE_BANK if noise else 0)


def _draw_lines(rng: np.random.Generator, count: int) -> Pixels:
    """Patterns of two lines; the second is the first line of another pattern, at times mirrored."""
    angle = rng.integers(2**32, size=count) / 2**32 * _STEEPEST
    slope = np.tan(angle)[:, None]  # (count, 1)
    x = np.linspace(0, np.minimum(_REACH, _REACH / np.maximum(slope[:, 0], 1)), _POINTS, axis=1)
    first = np.zeros((count, DIGIT_SIDE, DIGIT_SIDE), dtype=bool)
    first[np.arange(count)[:, None], np.rint(x).astype(int), np.rint(slope * x).astype(int)] = True
    second = first[np.argsort(rng.integers(2**32, size=count), kind="stable")]
    # The published generator mirrors the same axis for both of its draws: twice is not at all.
    once, again = rng.integers(100, size=(2, count)) < _MIRROR
    second = np.where((once != again)[:, None, None], second[:, :, ::-1], second)
    grey = rng.integers(*_GREYS, size=first.shape, dtype=np.uint8)
    cells: Pixels = np.where(first | second, grey, 0).astype(np.uint8)
    return cells


def _draw_strokes(rng: np.random.Generator, count: int) -> Pixels:
    """Patterns of two strokes across the cell, each of one grey value; the lighter is on top."""
    angle = np.deg2rad(rng.integers(180, size=(count, 2)))[..., None, None]  # (count, 2, 1, 1)
    shift = rng.integers(-_LARGEST_SHIFT, _LARGEST_SHIFT, size=(count, 2), endpoint=True)
    grey = rng.integers(_GREYS[0], _GREYS[1], size=(count, 2), dtype=np.uint8, endpoint=True)
    place = np.arange(DIGIT_SIDE) - (DIGIT_SIDE - 1) / 2
    across = np.cos(angle) * place + np.sin(angle) * place[:, None]  # (count, 2, 28, 28)
    inked: npt.NDArray[np.bool_] = np.abs(across - shift[..., None, None]) < _WIDTH / 2
    cells: Pixels = (inked * grey[..., None, None]).max(axis=1)
    return cells
