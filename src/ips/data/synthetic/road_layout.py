"""What is where on a picture of a road: the road itself, and signs on poles beside it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ips.data.synthetic.road_sprites import OTHERS, RINGED, Kind, Speed

# Pictures of another size show the same road, with signs that scale along; but never smaller
# ones, which could not be read.
SIZE = 800, 600
SMALLEST_SIZE = 320, 240
DIAMETERS = 28, 42

# So many places in vain, and signs are placed anew.
MISSES = 50


@dataclass(frozen=True)
class Road:
    """A road in perspective; a point of it is at depth 0 on the horizon, 1 at the lower edge.

    Args:
        horizon: row of the horizon.
        centre: column of the road's middle at the lower edge.
        vanishing: column at which a straight road would end.
        bend: how far to the right the road curves until it ends.
        half_width: of the road at the lower edge, in pixels.
    """

    horizon: int
    centre: float
    vanishing: float
    bend: float
    half_width: float

    def column(self, depth: float, across: float) -> float:
        """Where the road is ``across`` half widths to the right of its middle."""
        middle = self.vanishing + (self.centre - self.vanishing) * depth
        return middle + self.bend * (1 - depth) ** 3 + across * self.half_width * depth


@dataclass(frozen=True)
class Sign:
    """A sign on its pole.

    Args:
        kind: what it shows.
        x, y: top-left corner of the square it fills.
        diameter: side of that square.
        foot: row in which its pole stands.
        angle: by which it is turned, in degrees.
        light: brightness, 1 as painted.
        blur: standard deviation in pixels.
    """

    kind: Kind
    x: int
    y: int
    diameter: int
    foot: int
    angle: float
    light: float
    blur: float


@dataclass(frozen=True)
class Layout:
    """All that a picture follows from.

    Args:
        width, height: of the picture.
        road: where the road lies.
        signs: the farthest first.
        paint: seed and spawn key of whatever else is random in the picture.
    """

    width: int
    height: int
    road: Road
    signs: tuple[Sign, ...]
    paint: tuple[int, tuple[int, ...]]


def draw_layout(
    rng: np.random.Generator,
    limit: Speed | None,
    *,
    size: tuple[int, int],
    paint: tuple[int, tuple[int, ...]],
) -> Layout:
    """A random road of two to four signs, one of them the speed limit if there is one.

    All else is drawn from the same distribution whatever the limit. Where there is none, a sign of
    the same ring stands in its place: neither red nor round nor a pole gives anything away.
    """
    width, height = size
    road = _road(rng, width, height)
    ringed = RINGED[rng.integers(len(RINGED))]
    every = [*RINGED, *OTHERS]
    rest = rng.integers(len(every), size=rng.integers(1, 4))
    kinds: list[Kind] = [limit or ringed, *(every[i] for i in rest)]
    signs = _signs(rng, kinds, road=road, width=width, height=height)
    return Layout(width, height, road, signs, paint)


def _road(rng: np.random.Generator, width: int, height: int) -> Road:
    return Road(
        horizon=round(height * rng.uniform(0.38, 0.6)),
        centre=width * rng.uniform(0.3, 0.6),
        vanishing=width * rng.uniform(0.35, 0.65),
        bend=width * rng.uniform(-0.15, 0.15),
        half_width=width * rng.uniform(0.5, 0.7),
    )


def _signs(
    rng: np.random.Generator, kinds: list[Kind], *, road: Road, width: int, height: int
) -> tuple[Sign, ...]:
    """A sign of each kind at the roadside, no two of them in the same columns."""
    unit = max(min(width / SIZE[0], height / SIZE[1]), 1.0)
    signs: list[Sign] = []
    misses = 0
    while len(signs) < len(kinds):
        sign = _sign(rng, kinds[len(signs)], road=road, height=height, unit=unit)
        margin = sign.diameter // 4
        inside = margin <= sign.x <= width - sign.diameter - margin and sign.y >= margin
        if inside and all(_apart(sign, other) for other in signs):
            signs.append(sign)
            continue
        misses += 1
        if misses % MISSES == 0:
            signs.clear()  # the first ones may leave no room for the last
    return tuple(sorted(signs, key=lambda sign: sign.foot))


def _sign(rng: np.random.Generator, kind: Kind, *, road: Road, height: int, unit: float) -> Sign:
    diameter = round(unit * rng.uniform(*DIAMETERS))
    depth = diameter / (112 * unit) * rng.uniform(0.85, 1.15)  # the larger, the nearer
    across = (1, -1)[rng.integers(2)] * rng.uniform(1.2, 3.5)
    foot = round(road.horizon + depth * (height - road.horizon))
    return Sign(
        kind=kind,
        x=round(road.column(depth, across) - diameter / 2),
        y=foot - round(diameter * rng.uniform(2.4, 4.2)),
        diameter=diameter,
        foot=foot,
        angle=rng.uniform(-6, 6),
        light=rng.uniform(0.75, 1.05),
        blur=rng.uniform(0.2, 0.2 + diameter / (80 * unit)),
    )


def _apart(one: Sign, other: Sign) -> bool:
    """Neither sign nor pole of one is before the other."""
    gap = abs(one.x + one.diameter / 2 - other.x - other.diameter / 2)
    return gap > 0.7 * (one.diameter + other.diameter)
