"""Random layouts of road images: the road, and signs on poles beside it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ips.data.synthetic.road_sprites import OTHERS, RINGED

# Signs of larger images are larger too; those of smaller images are not smaller, because their
# text would not be readable.
SIZE = 800, 600
SMALLEST_SIZE = 320, 240
DIAMETERS = 28, 42

# Failed attempts to place a sign before all signs are placed again.
MAX_FAILURES = 50


@dataclass(frozen=True)
class Road:
    """A road in perspective; depth is 0 at the horizon and 1 at the lower edge."""

    horizon: int  # row
    centre: float  # column of the centre line at the lower edge
    vanishing: float  # column of the vanishing point of a straight road
    bend: float  # shift of the road to the right at the horizon, in pixels
    half_width: float  # at the lower edge, in pixels

    def column(self, depth: float, across: float) -> float:
        """Column of the point ``across`` half widths to the right of the centre line."""
        centre = self.vanishing + (self.centre - self.vanishing) * depth
        return centre + self.bend * (1 - depth) ** 3 + across * self.half_width * depth


@dataclass(frozen=True)
class Sign:
    """A sign on its pole."""

    kind: str
    x: int  # left edge of its bounding square
    y: int  # upper edge
    diameter: int  # side of that square
    foot: int  # row of the lower end of the pole
    angle: float  # degrees
    light: float  # brightness factor
    blur: float  # standard deviation in pixels


@dataclass(frozen=True)
class Layout:
    """Everything that determines an image."""

    width: int
    height: int
    road: Road
    signs: tuple[Sign, ...]  # farthest first
    paint: tuple[int, ...]  # seed and key of the random numbers of the background


def draw_layout(
    rng: np.random.Generator,
    limit: str | None,
    *,
    size: tuple[int, int],
    paint: tuple[int, ...],
) -> Layout:
    """Draw a random road with two to four signs, one of them the speed limit, if there is one.

    Everything else has the same distribution for all classes. Without a limit, another sign with a
    red ring takes its place, so that colour, shape and poles do not reveal the class.
    """
    width, height = size
    road = Road(
        horizon=round(height * rng.uniform(0.38, 0.6)),
        centre=width * rng.uniform(0.3, 0.6),
        vanishing=width * rng.uniform(0.35, 0.65),
        bend=width * rng.uniform(-0.15, 0.15),
        half_width=width * rng.uniform(0.5, 0.7),
    )
    ringed = RINGED[rng.integers(len(RINGED))]
    others = [*RINGED, *OTHERS]
    rest = rng.integers(len(others), size=rng.integers(1, 4))
    kinds = [limit or ringed, *(others[i] for i in rest)]
    signs = _signs(rng, kinds, road=road, width=width, height=height)
    return Layout(width, height, road, signs, paint)


def _signs(
    rng: np.random.Generator, kinds: list[str], *, road: Road, width: int, height: int
) -> tuple[Sign, ...]:
    """Place one sign of each kind at the roadside without horizontal overlap."""
    unit = max(min(width / SIZE[0], height / SIZE[1]), 1.0)
    signs: list[Sign] = []
    failures = 0
    while len(signs) < len(kinds):
        sign = _sign(rng, kinds[len(signs)], road=road, height=height, unit=unit)
        margin = sign.diameter // 4
        inside = margin <= sign.x <= width - sign.diameter - margin and sign.y >= margin
        if inside and all(_apart(sign, other) for other in signs):
            signs.append(sign)
            continue
        failures += 1
        if failures % MAX_FAILURES == 0:
            signs.clear()  # the first signs may leave no room for the last
    return tuple(sorted(signs, key=lambda sign: sign.foot))


def _sign(rng: np.random.Generator, kind: str, *, road: Road, height: int, unit: float) -> Sign:
    diameter = round(unit * rng.uniform(*DIAMETERS))
    depth = diameter / (112 * unit) * rng.uniform(0.85, 1.15)  # larger signs are nearer
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
    """Whether neither sign covers the other or its pole."""
    gap = abs(one.x + one.diameter / 2 - other.x - other.diameter / 2)
    return gap > 0.7 * (one.diameter + other.diameter)
