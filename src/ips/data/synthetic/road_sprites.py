"""Sprites of signs, trees and cars, drawn once at a large size; images show them reduced."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Self

import numpy as np
from PIL import Image, ImageDraw, ImageFont

Colour = tuple[int, int, int]
Points = list[tuple[float, float]]

_RED, _YELLOW, _BLUE = (196, 30, 42), (248, 204, 44), (24, 84, 168)
_BLACK, _WHITE = (22, 22, 24), (238, 238, 236)

_RADIUS, _MARGIN = 76, 4
_SIDE = 2 * (_RADIUS + _MARGIN)
SIGN_MARGIN = _MARGIN / (2 * _RADIUS)
"""Width of the margin around the sprite of a sign, in diameters of the sign."""


class _Board:
    """A transparent canvas; coordinates are multiples of the radius, relative to the centre."""

    def __init__(self, background: Colour) -> None:
        self.image = Image.new("RGBX", (_SIDE, _SIDE), (*background, 0))
        self._draw = ImageDraw.Draw(self.image)

    def disc(self, radius: float, colour: Colour, x: float = 0, y: float = 0) -> Self:
        corners = self._px([(x - radius, y - radius), (x + radius, y + radius)])
        self._draw.ellipse(corners, fill=colour)
        return self

    def shape(self, points: Points, colour: Colour) -> Self:
        self._draw.polygon(self._px(points), fill=colour)
        return self

    def box(self, x0: float, y0: float, x1: float, y1: float, colour: Colour) -> Self:
        return self.shape([(x0, y0), (x1, y0), (x1, y1), (x0, y1)], colour)

    def line(self, points: Points, width: float, colour: Colour) -> Self:
        self._draw.line(self._px(points), fill=colour, width=round(width * _RADIUS), joint="curve")
        return self

    def car(self, x: float, colour: Colour) -> Self:
        roof: Points = [(x - 0.22, 0), (x - 0.14, -0.3), (x + 0.14, -0.3), (x + 0.22, 0)]
        return self.box(x - 0.24, -0.05, x + 0.24, 0.3, colour).shape(roof, colour)

    def wheel(self, x: float) -> Self:
        return self.disc(0.3, _WHITE, x, 0.2).disc(0.18, _BLUE, x, 0.2)

    def text(self, text: str, width: float, height: float, colour: Colour) -> Self:
        """Draw centred text, stretched to fill a rectangle."""
        mask = Image.new("L", (600, 300))
        font = ImageFont.load_default(size=160)
        ImageDraw.Draw(mask).text((40, 40), text, fill=255, font=font, stroke_width=5)
        size = round(width * _RADIUS), round(height * _RADIUS)
        mask = mask.crop(mask.getbbox()).resize(size, Image.Resampling.LANCZOS)
        corner = (_SIDE - size[0]) // 2, (_SIDE - size[1]) // 2
        self.image.paste(Image.new("RGB", size, colour), corner, mask)
        return self

    @staticmethod
    def _px(points: Points) -> Points:
        return [(_SIDE / 2 + x * _RADIUS, _SIDE / 2 + y * _RADIUS) for x, y in points]


def _disc(colour: Colour) -> _Board:
    return _Board(colour).disc(1, colour)


def _ring(inside: Colour = _YELLOW) -> _Board:
    return _disc(_RED).disc(0.78, inside)


def _triangle(up: int) -> _Board:
    board = _Board(_RED)
    for size, colour in ((1.0, _RED), (0.62, _YELLOW)):
        base = up * size / 2
        board.shape([(0, -up * size), (0.87 * size, base), (-0.87 * size, base)], colour)
    return board


def _diamond(size: float) -> Points:
    return [(0, -size), (size, 0), (0, size), (-size, 0)]


def _octagon() -> Points:
    turn = np.deg2rad(22.5 + 45 * np.arange(8))
    return list(zip(np.cos(turn).tolist(), np.sin(turn).tolist(), strict=True))


_RINGED: dict[str, Callable[[], _Board]] = {
    "no vehicles": _ring,
    "no overtaking": lambda: _ring().car(-0.32, _RED).car(0.32, _BLACK),
    "no turning": lambda: (
        _ring()
        .line([(-0.15, 0.5), (-0.15, -0.15), (0.3, -0.15)], 0.18, _BLACK)
        .shape([(0.2, -0.45), (0.55, -0.15), (0.2, 0.15)], _BLACK)
        .line([(-0.55, -0.55), (0.55, 0.55)], 0.16, _RED)
    ),
    "no lorries": lambda: (
        _ring()
        .box(-0.55, -0.35, 0.15, 0.2, _BLACK)
        .box(0.2, -0.15, 0.55, 0.2, _BLACK)
        .disc(0.14, _BLACK, -0.35, 0.25)
        .disc(0.14, _BLACK, 0.35, 0.25)
    ),
    "no walking": lambda: (
        _ring()
        .disc(0.14, _BLACK, 0.02, -0.5)
        .line([(0, -0.3), (0, 0.1), (0.25, 0.55)], 0.2, _BLACK)
        .line([(0, 0.1), (-0.25, 0.55)], 0.17, _BLACK)
        .line([(-0.35, 0), (0, -0.25), (0.35, 0)], 0.12, _BLACK)
    ),
}
_OTHERS: dict[str, Callable[[], _Board]] = {
    "keep right": lambda: (
        _disc(_BLUE)
        .line([(-0.4, -0.4), (0.25, 0.25)], 0.22, _WHITE)
        .shape([(0.5, -0.1), (0.5, 0.5), (-0.1, 0.5)], _WHITE)
    ),
    "cycle path": lambda: (
        _disc(_BLUE)
        .wheel(-0.38)
        .wheel(0.38)
        .line([(-0.38, 0.2), (-0.1, -0.25), (0.25, -0.25), (0.38, 0.2)], 0.1, _WHITE)
    ),
    "danger": lambda: _triangle(1).box(-0.07, -0.3, 0.07, 0.1, _BLACK).disc(0.08, _BLACK, 0, 0.21),
    "crossroads": lambda: (
        _triangle(1)
        .line([(0, -0.35), (0, 0.28)], 0.13, _BLACK)
        .line([(-0.25, 0.05), (0.25, 0.05)], 0.13, _BLACK)
    ),
    "give way": lambda: _triangle(-1),
    "stop": lambda: _Board(_RED).shape(_octagon(), _RED).text("STOP", 1.4, 0.55, _WHITE),
    "no entry": lambda: _disc(_RED).box(-0.7, -0.18, 0.7, 0.18, _YELLOW),
    "no parking": lambda: _ring(_BLUE).line([(-0.55, -0.55), (0.55, 0.55)], 0.2, _RED),
    "priority": lambda: _Board(_WHITE).shape(_diamond(1), _WHITE).shape(_diamond(0.75), _YELLOW),
}
SPEEDS, RINGED, OTHERS = ("50", "70", "80"), tuple(_RINGED), tuple(_OTHERS)
"""Kinds of signs; those in `RINGED` differ from a speed limit only inside the red ring."""


@cache
def sign_sprite(kind: str) -> Image.Image:
    """Sprite of a sign with four bands: red, green, blue and opacity.

    Transparent pixels have the colour of the rim, so that rotating and reducing the bands one by
    one leaves no dark fringe.
    """
    if kind in SPEEDS:
        return _ring().text(kind, 1.18, 0.98, _BLACK).image
    return (_RINGED | _OTHERS)[kind]().image


TREES = 8
CARS = [(176, 34, 36), (44, 60, 92), (208, 208, 206), (48, 48, 52), (128, 132, 136)]


@cache
def tree_sprite(number: int) -> Image.Image:
    """RGBA sprite of a tree; odd numbers are firs."""
    rng = np.random.default_rng(number)
    image = Image.new("RGBA", (240, 340))
    draw = ImageDraw.Draw(image)
    draw.rectangle((114, 230, 126, 340), fill=(70, 58, 48, 255))
    base = np.array([54, 72, 40]) + rng.integers(-10, 14, size=3)
    crowns = rng.uniform((70, 70), (170, 200), size=(9, 2))  # of a deciduous tree
    for part in np.linspace(0, 1, 2500):  # leaf by leaf, lighter at the upper left
        if number % 2:
            spread = 6 + 96 * part * (0.7 + 0.3 * (part * 7 % 1))
            x, y = 120 + spread * rng.triangular(-1, 0, 1), 10 + 300 * part
            light = (120 - x) / spread * 14
        else:
            crown = crowns[rng.integers(len(crowns))]
            turn, reach = rng.uniform(0, 2 * np.pi), 62 * np.sqrt(rng.random())
            x, y = crown + reach * np.array([np.cos(turn), np.sin(turn)])
            light = (crown.sum() - x - y) * 0.3 + (135 - y) * 0.12
        red, green, blue = (base + light + rng.uniform(-12, 12)).clip(14, 200).astype(int).tolist()
        r = rng.uniform(2, 6)
        draw.ellipse((x - r, y - r * 0.7, x + r, y + r * 0.7), fill=(red, green, blue, 255))
    return image


@cache
def car_sprite(number: int, away: bool) -> Image.Image:
    """RGBA sprite of a car, with red lights if it drives away and white ones otherwise."""
    paint = CARS[number]
    image = Image.new("RGBA", (160, 128), (*paint, 0))
    draw = ImageDraw.Draw(image)
    for x in (12, 124):
        draw.rectangle((x, 96, x + 24, 126), fill=(24, 24, 26, 255))
    draw.polygon([(18, 56), (36, 8), (124, 8), (142, 56)], fill=(*paint, 255))
    draw.polygon([(32, 52), (44, 16), (116, 16), (128, 52)], fill=(52, 62, 72, 255))
    draw.rounded_rectangle((6, 50, 154, 112), 14, fill=(*paint, 255))
    lights = (226, 30, 34, 255) if away else (246, 246, 226, 255)
    for x in (10, 122):
        draw.rounded_rectangle((x, 58, x + 28, 76), 6, fill=lights)
    draw.rectangle((58, 82, 102, 94), fill=(226, 226, 220, 255))
    return image
