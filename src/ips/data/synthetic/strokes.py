"""Noise patterns of megapixel MNIST: cells of two straight strokes that resemble digits.

A stroke is three small integers: its angle, its distance from the centre of the cell and its grey
value. It is drawn in integer arithmetic, so every machine gives the same bits.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

Strokes = npt.NDArray[np.uint8]

_SIDE = 28
_ANGLES = 180  # in degrees
_SHIFTS = 13  # -6 to 6 px from the centre, so that a stroke crosses most of the cell
_GREY = 204, 256  # 0.8 to 1
_WIDTH = 2.5  # px, like a pen stroke in MNIST
_UNIT = 1024  # one pixel in fixed-point arithmetic

STROKE_STOP = (_ANGLES, _SHIFTS, _GREY[1])
"""Upper bounds (exclusive) of the three integers of a stroke."""


def draw_strokes(rng: np.random.Generator, count: int) -> Strokes:
    """Random strokes ``(count, 2, 3)``: two per cell, each with angle, shift and grey value."""
    size = (count, 2)
    angle = rng.integers(_ANGLES, size=size)
    shift = rng.integers(_SHIFTS, size=size)
    grey = rng.integers(*_GREY, size=size)
    return np.stack([angle, shift, grey], axis=-1).astype(np.uint8)


def render_strokes(strokes: Strokes) -> npt.NDArray[np.uint8]:
    """Render strokes ``(n, 2, 3)`` to cells ``(n, 28, 28)``; the lighter stroke is on top."""
    angle, shift, grey = np.moveaxis(strokes, -1, 0)  # (n, 2) each
    inked = _masks()[angle, shift]  # (n, 2, 28, 28)
    cells: npt.NDArray[np.uint8] = (inked * grey[..., None, None]).max(axis=1)  # (n, 28, 28)
    return cells


@lru_cache(maxsize=1)
def _masks() -> npt.NDArray[np.uint8]:
    """Masks of all possible strokes, ``(180, 13, 28, 28)``."""
    turn = np.deg2rad(np.arange(_ANGLES))
    across = np.rint(_UNIT * np.stack([np.cos(turn), np.sin(turn)])).astype(np.int64)  # (2, 180)
    # Twice the distance from the centre, which lies between two pixels.
    place = 2 * np.arange(_SIDE) - (_SIDE - 1)
    distance = across[0, :, None, None] * place + across[1, :, None, None] * place[:, None]
    shift = 2 * _UNIT * (np.arange(_SHIFTS) - _SHIFTS // 2)
    away = np.abs(distance[:, None] - shift[:, None, None])  # (180, 13, 28, 28)
    inked: npt.NDArray[np.uint8] = (away < _WIDTH * _UNIT).astype(np.uint8)
    return inked
