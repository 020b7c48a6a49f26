"""A TIFF whose tags contradict its tiles is refused; it would be read as another image."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tifffile
from hypothesis import given
from hypothesis import strategies as st

from ips.errors import ImageError
from ips.images import open_image
from ips.images.tiff_geometry import pieces_overlap
from tests.images.picture_files import HEIGHT, WIDTH, reduced, write_svs, write_tiff

Pixels = npt.NDArray[np.uint8]
FORMATS = {3: "<H", 4: "<I", 16: "<Q"}


def edit(path: Path, tag: str, value: int, *, index: int = 0, page: int = 0) -> None:
    """Overwrite one value of a tag."""
    with tifffile.TiffFile(path) as file:
        found = file.pages[page].tags[tag]
        form, place = FORMATS[int(found.dtype)], found.valueoffset
    data = bytearray(path.read_bytes())
    struct.pack_into(form, data, place + index * struct.calcsize(form), value)
    path.write_bytes(data)


def read_all(path: Path) -> Pixels:
    image = open_image(path)
    return image.read_region((0, 0), 0, image.dimensions)


TILED: dict[str, Any] = {"tile": (32, 48)}
STRIPS: dict[str, Any] = {"rowsperstrip": 16}
EDITS = [
    (TILED, "ImageWidth", WIDTH // 3),
    (TILED, "ImageWidth", WIDTH * 2),
    (TILED, "ImageLength", HEIGHT // 2),
    (TILED, "TileWidth", 64),
    (TILED, "TileWidth", 32),
    (TILED, "TileLength", 16),
    (TILED, "PlanarConfiguration", 2),
    (TILED, "PlanarConfiguration", 7),
    (TILED, "SamplesPerPixel", 1),
    (STRIPS, "ImageWidth", WIDTH // 3),
    (STRIPS, "ImageWidth", WIDTH - 1),
    (STRIPS, "ImageLength", 96),
    (STRIPS, "ImageLength", HEIGHT - 1),
    (STRIPS, "RowsPerStrip", 15),
    ({}, "ImageWidth", WIDTH // 3),
    ({}, "ImageLength", HEIGHT // 2),
]


@pytest.mark.parametrize("compression", [None, "lzw", "deflate", "lzma", "jpeg", "jpeg2000"])
@pytest.mark.parametrize(("layout", "tag", "value"), EDITS)
def test_edited_tags(
    tmp_path: Path,
    picture: Pixels,
    layout: dict[str, Any],
    tag: str,
    value: int,
    compression: str | None,
) -> None:
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, picture, photometric="rgb", compression=compression, **layout)
    assert read_all(path).shape == picture.shape
    edit(path, tag, value)
    with pytest.raises(ImageError, match=r"a\.tif"):
        read_all(path)


def test_the_message_names_both_numbers(tmp_path: Path, picture: Pixels) -> None:
    path = write_tiff(tmp_path / "a.tif", [picture])
    edit(path, "ImageWidth", 48)
    message = r"^a\.tif contradicts itself \(48 x 132 px in pieces .* are 5, but it lists 20\): "
    with pytest.raises(ImageError, match=message):
        open_image(path)


@given(st.lists(st.tuples(st.integers(8, 60), st.integers(1, 9)), max_size=12), st.booleans())
def test_overlaps_are_found_as_by_comparing_all_pairs(
    pieces: list[tuple[int, int]], ordered: bool
) -> None:
    given_order = sorted(pieces) if ordered else pieces
    starts = np.array([start for start, _ in given_order], np.int64)
    ends = starts + np.array([length for _, length in given_order], np.int64)
    spans = {(start, start + length) for start, length in pieces}
    naive = any(a[0] < b[1] and b[0] < a[1] for a in spans for b in spans if a != b)
    assert pieces_overlap(starts, ends) == naive


def test_tiles_that_overlap(tmp_path: Path, picture: Pixels) -> None:
    path = write_tiff(tmp_path / "a.tif", [picture], compression=None)
    with tifffile.TiffFile(path) as file:
        first = file.pages[0].dataoffsets[0]
    edit(path, "TileOffsets", first + 1, index=3)
    with pytest.raises(ImageError, match="two pieces of level 0 overlap"):
        open_image(path)
    edit(path, "TileOffsets", first, index=3)  # equal tiles may share their bytes
    np.testing.assert_array_equal(read_all(path)[:32, 144:], picture[:32, :6])


def test_a_tile_of_another_size_in_the_table(tmp_path: Path, picture: Pixels) -> None:
    path = write_tiff(tmp_path / "a.tif", [picture], compression=None)
    edit(path, "TileByteCounts", 100, index=2)
    with pytest.raises(ImageError, match="has 100 bytes instead of 4,608"):
        open_image(path)


def test_slides_of_vendors_are_checked_too(tmp_path: Path, picture: Pixels) -> None:
    path = write_svs(tmp_path / "a.svs", [picture, reduced(picture, 2)])
    read_all(path)
    edit(path, "ImageWidth", 60)
    message = r"a\.svs contradicts itself \(the size of page 0 makes 3 tiles, but it lists 9\)"
    with pytest.raises(ImageError, match=message):
        open_image(path)
