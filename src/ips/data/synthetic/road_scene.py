"""Draw the image of a road layout: sky, hills, ground, houses, trees, cars and signs.

Pillow and byte arithmetic keep this as fast as decoding a file. Textures and sprites are shared by
all images of a process.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter

from ips.data.seeded import seeded_generator
from ips.data.synthetic import road_sprites as sprites
from ips.data.synthetic.road_layout import Layout, Road, Sign
from ips.data.synthetic.road_sprites import Colour
from ips.data.synthetic.road_textures import HEADROOM, cloud_noise, ground_texture, sensor_noise

Pixels = npt.NDArray[np.uint8]

_SKIES: list[tuple[Colour, Colour, Colour]] = [  # zenith, horizon, clouds
    ((76, 128, 190), (188, 210, 226), (240, 242, 244)),
    ((104, 146, 190), (214, 220, 222), (232, 232, 232)),
    ((150, 160, 170), (198, 202, 204), (222, 224, 226)),
    ((112, 124, 158), (232, 204, 168), (236, 214, 196)),
]
_GRASS: list[Colour] = [(92, 112, 56), (112, 120, 62), (134, 126, 74), (82, 100, 60)]
_LEAVES: list[Colour] = [(48, 70, 44), (60, 80, 46), (74, 82, 44), (56, 66, 56)]
_PAINTS: list[Colour] = [(150, 46, 38), (206, 196, 170), (196, 164, 84), (120, 126, 130)]


def draw_scene(layout: Layout) -> Pixels:
    """Pixels of the image, ``(height, width, 3)``."""
    rng = seeded_generator(*layout.paint)
    image = Image.new("RGB", (layout.width, layout.height))
    for draw in (_sky, _hills, _ground, _houses, _trees, _cars):
        draw(image, rng, layout.road)
    image = _soften(image)
    for sign in layout.signs:
        _sign(image, sign)
    return _expose(image, rng)


def _sky(image: Image.Image, rng: np.random.Generator, road: Road) -> None:
    # Clouds are smooth, so a small picture of them can be enlarged.
    rows, columns = 75, 200
    zenith, horizon, cloud = np.array(_SKIES[rng.integers(len(_SKIES))], dtype=np.float32)
    down = np.linspace(0, 1, rows, dtype=np.float32)
    sky = zenith + (horizon - zenith) * down[:, None, None] ** 0.7  # (rows, 1, 3)
    noise = cloud_noise()
    top, left = rng.integers(noise.shape[0] - 2 * rows), rng.integers(noise.shape[1] - columns)
    # Rows are closer together towards the horizon, where clouds are seen from the side.
    along = top + np.rint(2 * rows * down**1.6).astype(np.int64)
    cover = noise[along, left : left + columns] * 1.6 + rng.uniform(-0.9, 0.7)
    cover = np.clip(cover, 0, 0.9)[..., None]  # (rows, columns, 1)
    pixels = (sky + (cloud - sky) * cover).astype(np.uint8)
    width, height = image.width, road.horizon + 1
    # Two steps take half of the time; `_soften` removes the staircase of the second.
    half = Image.fromarray(pixels).resize((width // 2, height // 2), Image.Resampling.BILINEAR)
    image.paste(half.resize((width, height), Image.Resampling.NEAREST))


def _hills(image: Image.Image, rng: np.random.Generator, road: Road) -> None:
    """Draw two ridges in the haze, and the edge of a forest in front of them."""
    draw = ImageDraw.Draw(image)
    haze = np.array(image.getpixel((image.width // 2, road.horizon - 1)))
    leaves = np.array(_LEAVES[rng.integers(len(_LEAVES))])
    for share, reach in ((0.3, 0.13), (0.6, 0.07)):
        height = image.height * reach * rng.uniform(0.3, 1)
        ridge = road.horizon - height * (0.5 + 0.5 * _profile(rng, image.width, 7))
        draw.polygon(_closed(ridge, road.horizon), fill=_rgb(haze + (leaves - haze) * share))
    reach = image.height * rng.uniform(0.01, 0.07)
    outline = 0.55 + 0.3 * _profile(rng, image.width, 9) + 0.3 * _profile(rng, image.width, 150)
    top = road.horizon - reach * np.maximum(outline, 0.1)
    forest = round(float(top.min()))
    texture = ground_texture(image.height, image.width, 1)
    left = rng.integers(image.width)
    crop = texture[-(road.horizon - forest + 2) :, left : left + image.width]
    mask = Image.new("L", (image.width, len(crop)))
    ImageDraw.Draw(mask).polygon(_closed(top - forest, len(crop)), fill=255)
    image.paste(Image.fromarray(crop + leaves.astype(np.uint8)), (0, forest), mask)


def _ground(image: Image.Image, rng: np.random.Generator, road: Road) -> None:
    depth = image.height - road.horizon
    left, right = rng.integers(image.width, size=2)
    grass = Image.new("RGB", (image.width, depth), _GRASS[rng.integers(len(_GRASS))])
    field = ImageDraw.Draw(grass)
    for side in (-1, 1):  # a field on either side of the road
        border = [(road.column(t, 2.2 * side), t * depth) for t in np.linspace(0, 1, 12)]
        beyond = 2 * image.width if side > 0 else -image.width
        green = _GRASS[rng.integers(len(_GRASS))]
        field.polygon([*border, (beyond, depth), (beyond, 0)], fill=green)
    tufts = ground_texture(image.height, image.width, 0)[:depth, left : left + image.width]
    image.paste(Image.fromarray(np.asarray(grass) + tufts), (0, road.horizon))

    grey = int(rng.integers(88, 124))
    surface = Image.new("RGB", (image.width, depth), (grey, grey, grey + 3))
    marks = ImageDraw.Draw(surface)
    white: Colour = (198, 198, 192)
    for across in (-0.92, 0.92):
        marks.polygon(_strip(road, depth, across, 0.022, 0.0, 1.0), fill=white)
    dash, phase = rng.uniform(0.5, 0.9), rng.uniform(0, 2)
    for i in range(24):  # at equal distances; the distance from the camera is 1 / depth
        near = 1 / (1 + (i * 2 - phase) * dash) if i * 2 > phase else 1.0
        far = 1 / (1 + (i * 2 + 1 - phase) * dash) if i * 2 + 1 > phase else 1.0
        marks.polygon(_strip(road, depth, 0.0, 0.018, far, near), fill=white)
    grain = ground_texture(image.height, image.width, 2)[:depth, right : right + image.width]
    mask = Image.new("L", surface.size)
    ImageDraw.Draw(mask).polygon(_strip(road, depth, 0.0, 1.0, 0.0, 1.0), fill=255)
    image.paste(Image.fromarray(np.asarray(surface) + grain), (0, road.horizon), mask)


def _houses(image: Image.Image, rng: np.random.Generator, road: Road) -> None:
    """Draw houses and billboards; many are red, so that red does not reveal a sign."""
    draw = ImageDraw.Draw(image)
    depths = np.sort(rng.uniform(0.06, 0.2, size=rng.integers(4)))
    for depth in depths.tolist():
        x = road.column(depth, (-1, 1)[rng.integers(2)] * rng.uniform(2.5, 8))
        y = road.horizon + depth * (image.height - road.horizon)
        w, h = np.array([2.2, 1.3]) * road.half_width * depth * rng.uniform(0.6, 1.1, size=2)
        paint = _PAINTS[rng.integers(len(_PAINTS))]
        if rng.random() < 0.3:
            draw.rectangle((x - w / 3, y - h, x - w / 3 + 2, y), fill=(90, 90, 90))
            draw.rectangle((x + w / 3, y - h, x + w / 3 + 2, y), fill=(90, 90, 90))
            draw.rectangle((x - w / 2, y - 1.3 * h, x + w / 2, y - h / 2), fill=paint)
            other = _PAINTS[rng.integers(len(_PAINTS))]
            draw.ellipse((x - h / 4, y - 1.15 * h, x + h / 4, y - 0.65 * h), fill=other)
            continue
        draw.rectangle((x - w / 2, y - h, x + w / 2, y), fill=paint)
        roof = [(x - w * 0.56, y - h), (x - w * 0.4, y - 1.6 * h)]
        roof += [(x + w * 0.4, y - 1.6 * h), (x + w * 0.56, y - h)]
        draw.polygon(roof, fill=(84, 66, 60))
        for part in (-0.3, 0.0, 0.3):
            box = x + (part - 0.06) * w, y - 0.75 * h, x + (part + 0.06) * w, y - 0.4 * h
            draw.rectangle(box, fill=(70, 78, 90), outline=(222, 220, 212))


def _trees(image: Image.Image, rng: np.random.Generator, road: Road) -> None:
    depths = np.sort(rng.uniform(0.04, 0.24, size=rng.integers(4, 10)))
    for depth in depths.tolist():  # nearest last
        sprite = sprites.tree_sprite(int(rng.integers(sprites.TREES)))
        height = round(rng.uniform(1.6, 3.2) * road.half_width * depth)
        width = round(height * rng.uniform(0.55, 0.75))
        tree = sprite.resize((width, height), Image.Resampling.NEAREST)  # softened later
        x = road.column(depth, (-1, 1)[rng.integers(2)] * rng.uniform(2.3, 9.0))
        _stand(image, tree, road, depth, x)


def _cars(image: Image.Image, rng: np.random.Generator, road: Road) -> None:
    """Draw cars, from behind in the right lane and from the front in the left lane."""
    depths = np.sort(rng.uniform(0.06, 0.4, size=rng.integers(3)))
    for depth in depths.tolist():
        away = bool(rng.integers(2))
        width = max(round(0.52 * road.half_width * depth), 4)
        sprite = sprites.car_sprite(int(rng.integers(len(sprites.CARS))), away)
        car = sprite.resize((width, round(0.8 * width)), Image.Resampling.BOX)
        x = road.column(depth, 0.45 if away else -0.45)
        _stand(image, car, road, depth, x)


def _stand(image: Image.Image, sprite: Image.Image, road: Road, depth: float, x: float) -> None:
    """Paste a sprite with its foot at a depth of the road."""
    y = road.horizon + depth * (image.height - road.horizon)
    image.paste(sprite, (round(x - sprite.width / 2), round(y - sprite.height)), sprite)


def _sign(image: Image.Image, sign: Sign) -> None:
    d = sign.diameter
    thick = max(round(d / 14), 1)
    x = sign.x + (d - thick) // 2
    draw = ImageDraw.Draw(image)
    grey = round(130 * sign.light)
    draw.rectangle((x, sign.y + d // 2, x + thick - 1, sign.foot), fill=(grey, grey, grey))
    draw.line((x + thick, sign.y + d // 2, x + thick, sign.foot), fill=(70, 70, 70))

    margin = round(d * sprites.SIGN_MARGIN)
    size = d + 2 * margin, d + 2 * margin
    face = sprites.sign_sprite(sign.kind).rotate(sign.angle).resize(size, Image.Resampling.BOX)
    *colours, cover = face.filter(ImageFilter.GaussianBlur(sign.blur)).split()
    shade = [min(round(value * sign.light), 255) for value in range(256)]
    front = Image.merge("RGB", colours).point(shade * 3)
    image.paste(front, (sign.x - margin, sign.y - margin), cover)


def _soften(image: Image.Image) -> Image.Image:
    """Average 2 x 2 pixels, so that edges are smooth."""
    pixels = np.array(image)
    for first, second in ((np.s_[:-1], np.s_[1:]), (np.s_[:, :-1], np.s_[:, 1:])):
        a, b = pixels[first], pixels[second]
        mean = a ^ b  # the mean is (a & b) + (a ^ b) / 2, which fits into a byte
        mean >>= 1
        mean += a & b
        pixels[first] = mean
    return Image.fromarray(pixels)


def _expose(image: Image.Image, rng: np.random.Generator) -> Pixels:
    """Apply random exposure and sensor noise."""
    value = np.linspace(0, 1, 256)
    gain, gamma = rng.uniform(0.75, 1.12), rng.uniform(0.85, 1.2)
    tint = 1 + rng.uniform(-0.05, 0.05) * np.array([1, 0, -1])
    curve = 255 * gain * tint[:, None] * value**gamma  # (3, 256)
    # Clamp away from black and white, so that adding noise cannot overflow.
    table = np.clip(np.rint(curve), HEADROOM, 255 - HEADROOM).astype(np.int64)
    pixels = np.asarray(image.point(table.ravel().tolist()))
    noise = sensor_noise(pixels.size, int(rng.integers(2, 5)))
    start = rng.integers(pixels.size)
    noisy: Pixels = pixels + noise[start : start + pixels.size].reshape(pixels.shape)
    return noisy


def _profile(rng: np.random.Generator, width: int, knots: int) -> npt.NDArray[np.float64]:
    """Random line between -1 and 1 over the width of the image."""
    return np.interp(np.linspace(0, knots - 1, width), np.arange(knots), rng.uniform(-1, 1, knots))


def _closed(line: npt.NDArray[np.float64], bottom: float) -> list[tuple[float, float]]:
    """Polygon between a line over the whole width and the row ``bottom``."""
    points = list(enumerate(line.tolist()))
    return [(0.0, bottom), *points[::4], points[-1], (len(points), bottom)]


def _strip(
    road: Road, depth: int, across: float, half: float, far: float, near: float
) -> list[tuple[float, float]]:
    """Polygon along the road between two depths; rows count from the horizon."""
    at = np.linspace(far, near, 24 if near - far > 0.2 else 3).tolist()
    left = [(road.column(t, across - half), t * depth) for t in at]
    right = [(road.column(t, across + half), t * depth) for t in reversed(at)]
    return left + right


def _rgb(colour: npt.NDArray[np.float64]) -> Colour:
    red, green, blue = np.rint(colour).astype(int).tolist()
    return red, green, blue
