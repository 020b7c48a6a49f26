"""Which pages of a TIFF are the levels of its image: SubIFDs or pages, exact or padded."""

from __future__ import annotations

from typing import Any

from ips.errors import ImageError
from ips.images.image import Size


def pyramid(series: list[Any], name: str) -> list[tuple[list[Any], Size]]:
    """The pages (one per channel plane) and the true size of each level, the finest first."""
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
    """The pages that make up one picture; a stack of several pictures is an error."""
    axes, shape = series.get_axes(squeeze=True), series.get_shape(squeeze=True)
    pages = list(series)
    channels = dict(zip(axes, shape, strict=True)).get("C", 1)
    # Colour is in one page of several samples, or in a page for each channel.
    expected = 1 if series.keyframe.samplesperpixel > 1 else channels
    if set(axes) - set("YXSC") or None in pages or len(pages) != expected:
        raise ImageError(
            f"{name} holds a stack of images (axes {axes}, shape {tuple(shape)}): save one of "
            "them as (height, width, channels)"
        )
    return pages


def _level_size(first: Any, level: Any) -> Size | None:
    """Size of ``level`` without padding, None if it is not a smaller copy of ``first``."""
    alike = level.axes == first.axes and level.dtype == first.dtype
    # Labels, macros and thumbnails are stripped, levels are tiled or marked as reduced.
    if not alike or not (level.keyframe.is_tiled == first.keyframe.is_tiled or _reduced(level)):
        return None
    (width, height), (w, h) = _size(first), _size(level)
    if w >= width or h >= height:
        return None
    downsample = (width / w + height / h) / 2
    if abs(width / downsample - w) <= 1 and abs(height / downsample - h) <= 1:
        return w, h
    # Some writers (ASAP, hence CAMELYON16) halve the image and pad each level to whole tiles:
    # taking the padding for picture would shift whatever lies far from the top left.
    halvings = 1
    while width > w << halvings or height > h << halvings:
        halvings += 1
    true = -(-width // 2**halvings), -(-height // 2**halvings)
    tile = level.keyframe.tilewidth, level.keyframe.tilelength
    padded = all(t and -(-s // t) * t == p for s, t, p in zip(true, tile, (w, h), strict=True))
    return true if padded else None


def _reduced(level: Any) -> bool:
    return bool(level.keyframe.is_reduced or level.keyframe.is_subifd)
