"""One level of a TIFF: decode the tiles or strips that a region overlaps."""

from __future__ import annotations

from functools import partial
from threading import RLock
from typing import Any

import numpy as np
import tifffile

from ips.errors import ImageError
from ips.images.array import release_pages
from ips.images.colour import cmyk_to_rgb, over, palette_to_rgb, premultiplied_over
from ips.images.damage import decoding
from ips.images.image import Pixels, Size
from ips.images.pillow import MAX_PIXELS
from ips.images.tiff_geometry import check_size, check_table, jpeg_size
from ips.images.tile_cache import TileCache

_KIND = tifffile.PHOTOMETRIC
_GREY = (_KIND.MINISBLACK, _KIND.MINISWHITE)
_OLD_JPEG = 6  # the end marker need not be in the segment
_JPEG = {_OLD_JPEG, 7, 33007, 34892}  # decoding converts YCbCr to RGB
_CUTTING = {5, 34925}  # LZW and LZMA, whose decoders omit what does not fit
_WEBP = 50001
# JPEG 2000, PNG, JPEG XR and JPEG XL: tifffile would rearrange the pixels of a picture of another
# size.
_PICTURES = {33003, 33004, 33005, 34712, 34933, 34934, _WEBP, 50002}
_JPEG_END = b"\xff\xd9"
_ALPHA = (1, 2)  # ExtraSamples: premultiplied and plain alpha
_PLAIN_ALPHA = 2


class TiffLevel:
    """The pages of one level: a single page, or one per channel.

    ``tile`` is the size of a tile or strip (None if nothing needs decoding), ``row_bytes`` the size
    of one decoded row of tiles, and ``channels`` 1 for grey and 3 for colour.

    Args:
        pages: pages of tifffile.
        size: width and height of the image, smaller than the page if that is padded.
        number: number of the level, for messages.
        name: name of the file, for messages.
        background: value of tiles that are not stored, and behind transparent pixels.
    """

    def __init__(
        self, pages: list[Any], *, size: Size, number: int, name: str, background: int
    ) -> None:
        self.size = size
        self.background = background
        self._pages = pages
        self._number = number
        self._name = name
        page = self._page = pages[0].keyframe
        self._samples = len(pages) * page.samplesperpixel
        self.channels = 1 if page.photometric in _GREY and self._samples < 3 else 3
        self._check_supported()
        if page.is_tiled:
            self._segment: Size = page.tilewidth, page.tilelength
        else:
            self._segment = page.imagewidth, min(page.rowsperstrip, page.imagelength)
        width, height = self._segment
        self._columns = -(-page.imagewidth // width)
        self._tiles = self._columns * -(-page.imagelength // height)
        self._planes = page.samplesperpixel if page.planarconfig == 2 else 1
        self._segment_samples = page.samplesperpixel // self._planes
        for one in pages:
            check_table(one, segment=self._segment, number=number, name=name)
        # Uncompressed contiguous bytes are memory-mapped, however large the strips are.
        self._mappable = all(p.is_memmappable for p in pages)
        self._maps: list[Pixels] | None = None
        self.tile = None if self._mappable else self._segment
        self.row_bytes = int(self._columns * width * height) * self.channels
        if not self._mappable and width * height > MAX_PIXELS:
            raise ImageError(
                f"{name} stores {width} x {height} px of level {number} in one piece, which can "
                "only be decoded whole: convert it to a tiled TIFF"
            )
        page.init_decode()  # its first call is not thread-safe

    def read(
        self, location: tuple[int, int], size: Size, *, cache: TileCache, lock: RLock
    ) -> Pixels:
        """Read a region inside the level; ``lock`` guards the position in the file."""
        (x, y), (width, height) = location, size
        if self._mappable:
            maps = self._mapped(lock)
            parts = [m[y : y + height, x : x + width] for m in maps]
            raw = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=2)
            pixels = np.array(self._colour(raw))  # a copy, independent of the map
            for mapped in maps:
                release_pages(mapped)
            return pixels
        tile_width, tile_height = self._segment
        out = np.full((height, width, self.channels), self.background, dtype=np.uint8)
        for row in range(y // tile_height, -(-(y + height) // tile_height)):
            for column in range(x // tile_width, -(-(x + width) // tile_width)):
                segments = self._segments(row, column)
                if not any(page.databytecounts[i] for page, i in segments):
                    continue  # a sparse tile is not stored
                key = self._number, row, column
                tile = cache.get(key, partial(self._decode, segments, key, lock))
                left, top = column * tile_width, row * tile_height
                x0, x1 = max(x, left), min(x + width, left + tile_width)
                y0, y1 = max(y, top), min(y + height, top + tile_height)
                part = tile[y0 - top : y1 - top, x0 - left : x1 - left]
                out[y0 - y : y1 - y, x0 - x : x1 - x] = part
        return out

    def _segments(self, row: int, column: int) -> list[tuple[Any, int]]:
        """Segments of one tile as (page, index): several if channels are stored separately."""
        index = row * self._columns + column
        stored = range(index, self._planes * self._tiles, self._tiles)
        return [(page, i) for page in self._pages for i in stored]

    def _decode(
        self, segments: list[tuple[Any, int]], key: tuple[int, int, int], lock: RLock
    ) -> Pixels:
        level, row, column = key
        with decoding(f"{self._name}: tile in row {row}, column {column} of level {level}"):
            parts = [self._decode_segment(page, i, lock) for page, i in segments]
            shape = next(part.shape for part in parts if part is not None)
            whole = [np.zeros(shape, np.uint8) if part is None else part for part in parts]
            raw = whole[0] if len(whole) == 1 else np.concatenate(whole, axis=2)
            # A copy, so that the cache counts the memory that is really used.
            return np.ascontiguousarray(self._colour(raw))

    def _decode_segment(self, page: Any, index: int, lock: RLock) -> Pixels | None:
        offset, count = page.dataoffsets[index], page.databytecounts[index]
        if not count:
            return None
        file = page.parent.filehandle
        if offset + count > file.size:
            raise EOFError("the file ends too early")
        with lock:
            file.seek(offset)
            data = file.read(count)
        tables, header = page.jpegtables, page.keyframe.jpegheader
        # The decoder silently fills missing data with grey. Segments that share a header
        # (Hamamatsu) are pieces of one JPEG and have no end marker.
        whole = self._page.compression in _JPEG - {_OLD_JPEG} and header is None
        if whole and not data.rstrip(b"\0").endswith(_JPEG_END):
            raise EOFError("its JPEG data is incomplete")
        allowed = self._segment_sizes(index)
        if whole:
            check_size(jpeg_size(data), allowed)
        elif self._page.compression in _PICTURES:
            return self._decode_picture(data, allowed)
        elif self._page.compression in _CUTTING and self._page.fillorder == 1:
            return self._decode_rows(data, allowed)
        decoded, *_ = page.decode(data, index, jpegtables=tables, jpegheader=header)
        pixels: Pixels = decoded[0]  # (h, w, samples)
        return pixels

    def _segment_sizes(self, index: int) -> set[Size]:
        """Sizes that a segment may have: at the edges, it may end with the image."""
        width, height = self._segment
        row, column = divmod(index % self._tiles, self._columns)
        right = min(width, self._page.imagewidth - column * width)
        bottom = min(height, self._page.imagelength - row * height)
        return {(w, h) for w in (width, right) for h in (height, bottom)}

    def _decode_rows(self, data: bytes, allowed: set[Size]) -> Pixels:
        """Decode a segment whose length the decoder does not check."""
        page, samples = self._page, self._segment_samples
        lengths = {width * height * samples: (width, height) for width, height in sorted(allowed)}
        content = tifffile.TIFF.DECOMPRESSORS[page.compression](data, out=max(lengths) + 1)
        if len(content) not in lengths:
            raise ValueError("it has another number of pixels than the tags say")
        width, height = lengths[len(content)]
        rows: Pixels = np.frombuffer(content, np.uint8).reshape(height, width, samples)
        return (
            rows
            if page.predictor == 1
            else tifffile.TIFF.UNPREDICTORS[page.predictor](rows, axis=-2)
        )

    def _decode_picture(self, data: bytes, allowed: set[Size]) -> Pixels:
        """Decode a segment in a format that stores its own size, such as JPEG 2000."""
        page = self._page
        # WebP omits an opaque alpha channel.
        options = {"hasalpha": True} if page.compression == _WEBP and self._samples == 4 else {}
        decoded: Pixels = tifffile.TIFF.DECOMPRESSORS[page.compression](data, **options)
        check_size(decoded.shape[1::-1], allowed)
        return decoded.reshape(*decoded.shape[:2], self._segment_samples)

    def _mapped(self, lock: RLock) -> list[Pixels]:
        """Memory maps of the pages, ``(h, w, samples)`` each."""
        with lock:
            if self._maps is None:
                page, samples = self._page, self._page.samplesperpixel
                height, width = page.imagelength, page.imagewidth
                apart = page.planarconfig == 2
                shape = (samples, height, width) if apart else (height, width, samples)
                with decoding(f"{self._name}: level {self._number}"):
                    maps = [
                        p.parent.filehandle.memmap_array("u1", shape, offset=p.dataoffsets[0])
                        for p in self._pages
                    ]
                arrays = [np.asarray(m) for m in maps]  # slicing plain arrays is faster
                self._maps = [a.transpose(1, 2, 0) if apart else a for a in arrays]
            return self._maps

    def _colour(self, raw: Pixels) -> Pixels:
        """Convert stored samples to grey or RGB."""
        page = self._page
        if page.photometric == _KIND.PALETTE:
            return palette_to_rgb(raw, page.colormap)
        if page.photometric == _KIND.SEPARATED:
            return cmyk_to_rgb(raw)
        if page.photometric == _KIND.MINISWHITE:
            return 255 - raw
        if self._samples == self.channels:
            return raw
        if page.extrasamples[0] == _PLAIN_ALPHA:
            return over(raw, self.background)
        return premultiplied_over(raw, self.background)

    def _check_supported(self) -> None:
        page, samples, kind = self._page, self._samples, self._page.photometric
        if page.dtype != np.uint8 or page.bitspersample != 8:
            raise ImageError(
                f"{self._name} is {page.dtype} of {page.bitspersample} bits, but only 8-bit "
                "images are read: scale it to 0 to 255 and save it as uint8"
            )
        grey = {1, 3, 2 if page.extrasamples and page.extrasamples[0] in _ALPHA else 1}
        readable = {
            _KIND.MINISBLACK: grey,
            _KIND.MINISWHITE: {1},
            _KIND.RGB: {3, 4},
            _KIND.YCBCR: {3} if page.compression in _JPEG else set(),
            _KIND.PALETTE: {1},
            _KIND.SEPARATED: {4},
        }
        if samples not in readable.get(kind, set()):
            raise ImageError(
                f"{self._name} has {samples} channels as {_KIND(kind).name}: only grey, RGB, "
                "palette and CMYK TIFFs are read, convert it to one of them"
            )
