"""Find the levels of a TIFF image: SubIFDs or pages, with or without padding."""

from __future__ import annotations

from typing import Any

from ips.errors import ImageError
from ips.images.image import Size


def pyramid(series: list[Any], name: str) -> list[tuple[list[Any], Size]]:
    """Return the pages (one per channel plane) and the size without padding of each level."""
    first = series[0]
    levels = [(_planes(first, name), _size(first))]
    others = [level for one in series for level in one.levels if level is not first]
    for level in sorted(others, key=lambda level: -_size(level)[0]):
        size = _level_size(first, level)
        last = levels[-1][1]
        if size is not None and size[0] < last[0] and size[1] < last[1]:
            levels.append((_planes(level, name), size))
    return levels


def _size(series: Any) -> Size:
    return int(series.keyframe.imagewidth), int(series.keyframe.imagelength)


def _planes(series: Any, name: str) -> list[Any]:
    """Return the pages of one image; raise if they are a stack of several images."""
    sizes = [(a, n) for a, n in zip(series.axes, series.shape, strict=True) if n > 1 or a in "YX"]
    axes, shape = "".join(axis for axis, _ in sizes), tuple(size for _, size in sizes)
    pages = list(series)
    channels = dict(sizes).get("C", 1)
    # Colour is one page with several samples, or one page per channel.
    expected = 1 if series.keyframe.samplesperpixel > 1 else channels
    if set(axes) - set("YXSC") or None in pages or len(pages) != expected:
        raise ImageError(
            f"{name} is a stack of images (axes {axes}, shape {shape}): save one of "
            "them as (height, width, channels)"
        )
    return pages


def _level_size(first: Any, level: Any) -> Size | None:
    """Return the size of ``level`` without padding, None if it is not a reduced ``first``."""
    same = level.axes == first.axes and level.dtype == first.dtype
    page = level.keyframe
    # Labels, macros and thumbnails have strips; levels have tiles or are marked as reduced.
    reduced = page.is_reduced or page.is_subifd
    if not same or not (reduced or page.is_tiled == first.keyframe.is_tiled):
        return None
    (width, height), (w, h) = _size(first), _size(level)
    if w >= width or h >= height:
        return None
    downsample = (width / w + height / h) / 2
    if abs(width / downsample - w) <= 1 and abs(height / downsample - h) <= 1:
        return w, h
    # Some writers (ASAP, for CAMELYON16) halve the image and pad each level to whole tiles. With
    # the padding, the scale would be wrong and regions far from the top left would be shifted.
    halvings = 1
    while width > w << halvings or height > h << halvings:
        halvings += 1
    exact = -(-width // 2**halvings), -(-height // 2**halvings)
    tile = page.tilewidth, page.tilelength
    padded = all(t and -(-s // t) * t == p for s, t, p in zip(exact, tile, (w, h), strict=True))
    return exact if padded else None
