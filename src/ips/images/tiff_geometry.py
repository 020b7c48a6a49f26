"""Check that the tags of a TIFF agree with its table of tiles and with the tiles themselves.

The tags say how large the image and its tiles are. If one of them is damaged, most decoders put
the pixels together to another image without an error.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tifffile

from ips.errors import ImageError
from ips.images.image import Size
from ips.remote import local_file

Integers = npt.NDArray[np.int64]

_JPEG_SIZES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # markers of frames
_NO_LENGTH = {0x01, *range(0xD0, 0xD9)}  # markers without a segment
_TABLES = (273, 279, 324, 325)  # offsets and byte counts of strips, and of tiles
_FIRST_OFFSET = 8  # the header is before


def check_table(page: Any, *, segment: Size, number: int, name: str) -> None:
    """Raise if the table of tiles or strips is not that of an image of this size.

    Args:
        page: page of tifffile.
        segment: width and height of a tile, or of a strip.
        number: number of the level, for messages.
        name: name of the file, for messages.
    """
    key, planes = page.keyframe, page.keyframe.samplesperpixel if _separate(page) else 1
    if key.planarconfig not in (1, 2):
        raise _contradiction(name, f"PlanarConfiguration is {key.planarconfig}, expected 1 or 2")
    width, height = segment
    rows = -(-key.imagelength // height)
    expected = planes * rows * -(-key.imagewidth // width)
    offsets = np.asarray(page.dataoffsets, np.int64)
    counts = np.asarray(page.databytecounts, np.int64)
    # tifffile cuts a table that is too long.
    tags = [page.tags.get(code) for code in _TABLES] if isinstance(page, tifffile.TiffPage) else []
    for listed in (len(offsets), len(counts), *(tag.count for tag in tags if tag is not None)):
        if listed != expected:
            raise _contradiction(
                name,
                f"{key.imagewidth} x {key.imagelength} px in pieces of {width} x {height} px at "
                f"level {number} are {expected}, but it lists {listed}",
            )
    stored = np.flatnonzero(counts)  # sparse tiles are not stored
    if key.compression == 1 and len(stored):
        row = -(-width * key.samplesperpixel // planes * key.bitspersample // 8)  # bytes
        sizes = np.full(expected, height * row)
        if not key.is_tiled:  # the last strip of each plane may be shorter
            last, full = slice(rows - 1, None, rows), height * row
            rest = (key.imagelength - (rows - 1) * height) * row
            sizes[last] = np.where(counts[last] == full, full, rest)
        wrong = stored[counts[stored] != sizes[stored]]
        if len(wrong):
            raise _contradiction(
                name,
                f"a piece of {width} x {height} px at level {number} has {counts[wrong[0]]:,} "
                f"bytes instead of {sizes[wrong[0]]:,}",
            )
    starts, ends = offsets[stored], offsets[stored] + counts[stored]
    if len(stored) and starts.min() < _FIRST_OFFSET:
        raise _contradiction(name, f"a piece of level {number} begins in the header of the file")
    if pieces_overlap(starts, ends):
        raise _contradiction(name, f"two pieces of level {number} overlap in the file")


def pieces_overlap(starts: Integers, ends: Integers) -> bool:
    """Whether two pieces overlap; equal tiles may share their bytes."""
    if (starts[1:] >= ends[:-1]).all():
        return False  # in the order of the file, as nearly all tables are
    order = np.lexsort((ends, starts))
    starts, ends = starts[order], ends[order]
    equal = (starts[1:] == starts[:-1]) & (ends[1:] == ends[:-1])
    return bool(((starts[1:] < ends[:-1]) & ~equal).any())


def check_tables_of_slide(path: Path) -> None:
    """Raise if the table of tiles of any page is not that of an image of its size.

    For files that OpenSlide reads, in any vendor's variant of TIFF. What cannot be read here, or
    has strips, is left to OpenSlide.
    """
    try:
        with local_file(path) as local, tifffile.TiffFile(local) as file:
            pages = [page for page in file.pages if isinstance(page, tifffile.TiffPage)]
            tables = [_tag_table(page) for page in pages]
    except Exception:  # OpenSlide reads more variants
        return
    for number, table in enumerate(tables):
        if table is not None and table[0] != table[1]:
            raise _contradiction(
                path.name,
                f"the size of page {number} makes {table[0]} tiles, but it lists {table[1]}",
            )


def check_size(size: tuple[int, ...] | None, allowed: set[Size]) -> None:
    """Raise ValueError if a decoded tile has none of these sizes, width and height."""
    if size is not None and size not in allowed:
        width, height = max(allowed)
        raise ValueError(
            f"it has {' x '.join(map(str, size))} px, but the tags say {width} x {height}"
        )


def jpeg_size(data: bytes) -> Size | None:
    """Width and height in the header of JPEG data, None if they are not there."""
    place = 2
    while place + 9 <= len(data) and data[place] == 0xFF:
        marker = data[place + 1]
        if marker in _JPEG_SIZES:
            height, width = (int.from_bytes(data[place + i : place + i + 2]) for i in (5, 7))
            return (width, height) if height else None
        length = 0 if marker in _NO_LENGTH else int.from_bytes(data[place + 2 : place + 4])
        place += 1 if marker == 0xFF else 2 + length
    return None


def _tag_table(page: tifffile.TiffPage) -> tuple[int, int] | None:
    """Number of tiles that follows from the size of a page, and that of its table."""
    offsets = page.tags.get("TileOffsets")
    sides = page.imagewidth, page.imagelength, page.tilewidth, page.tilelength
    if offsets is None or not all(sides) or page.imagedepth > 1:
        return None
    width, height, tile_width, tile_height = sides
    planes = page.samplesperpixel if _separate(page) else 1
    return planes * -(-width // tile_width) * -(-height // tile_height), int(offsets.count)


def _separate(page: Any) -> bool:
    return bool(page.keyframe.planarconfig == 2)


def _contradiction(name: str, what: str) -> ImageError:
    return ImageError(
        f"{name} contradicts itself ({what}): the file is damaged, copy or export it again"
    )
