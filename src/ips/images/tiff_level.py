"""One level of a TIFF: decode the tiles or strips that a region overlaps."""

from __future__ import annotations

from functools import partial
from threading import RLock
from typing import Any

import numpy as np
import numpy.typing as npt
import tifffile

from ips.errors import ImageError
from ips.images.array import MAX_BANDS, release_pages
from ips.images.colour import cmyk_to_rgb, over, palette_to_rgb, premultiplied_over, to_bytes
from ips.images.damage import decoding
from ips.images.image import Pixels, Size
from ips.images.pillow import MAX_PIXELS
from ips.images.tiff_geometry import check_size, check_table, jpeg_size
from ips.images.tile_cache import TileCache

_KIND = tifffile.PHOTOMETRIC
_BANDS = (_KIND.MINISBLACK, _KIND.RGB)  # any number of samples
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

Values = npt.NDArray[Any]  # as stored


class TiffLevel:
    """The pages of one level: a single page, or one per channel.

    ``tile`` is the size of a tile or strip (None if nothing needs decoding), ``row_bytes`` the size
    of one decoded row of tiles, and ``channels`` 1 for grey, 3 for colour, or the bands of others.

    Args:
        pages: pages of tifffile.
        size: width and height of the image, smaller than the page if that is padded.
        number: number of the level, for messages.
        name: name of the file, for messages.
        background: value of tiles that are not stored, and behind transparent pixels.
        white: stored value that becomes 255; None if values have 8 bits.
    """

    def __init__(
        self,
        pages: list[Any],
        *,
        size: Size,
        number: int,
        name: str,
        background: int,
        white: float | None,
    ) -> None:
        self.size = size
        self.background = background
        self._pages = pages
        self._number = number
        self._name = name
        page = self._page = pages[0].keyframe
        self._samples = len(pages) * page.samplesperpixel
        self._white = white
        extra = page.extrasamples[-1] if page.extrasamples else None
        self._alpha = extra if page.photometric in _BANDS and extra in _ALPHA else None
        bands = self._samples - (self._alpha is not None)
        self.channels = bands if page.photometric in _BANDS else 3
        if page.photometric == _KIND.MINISWHITE:
            self.channels = 1
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
        self._maps: list[Values] | None = None
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
            empty = np.zeros(shape, self._page.dtype)
            whole = [empty if part is None else part for part in parts]
            raw = whole[0] if len(whole) == 1 else np.concatenate(whole, axis=2)
            # A copy, so that the cache counts the memory that is really used.
            return np.ascontiguousarray(self._colour(raw))

    def _decode_segment(self, page: Any, index: int, lock: RLock) -> Values | None:
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
        elif self._page.compression in _CUTTING and self._page.fillorder == 1 and not self._packed:
            return self._decode_rows(data, allowed)
        decoded, *_ = page.decode(data, index, jpegtables=tables, jpegheader=header)
        values: Values = decoded[0]  # (h, w, samples)
        return values

    def _segment_sizes(self, index: int) -> set[Size]:
        """Sizes that a segment may have: at the edges, it may end with the image."""
        width, height = self._segment
        row, column = divmod(index % self._tiles, self._columns)
        right = min(width, self._page.imagewidth - column * width)
        bottom = min(height, self._page.imagelength - row * height)
        return {(w, h) for w in (width, right) for h in (height, bottom)}

    def _decode_rows(self, data: bytes, allowed: set[Size]) -> Values:
        """Decode a segment whose length the decoder does not check."""
        page, samples, depth = self._page, self._segment_samples, self._page.dtype.itemsize
        lengths = {w * h * samples * depth: (w, h) for w, h in sorted(allowed)}
        content = tifffile.TIFF.DECOMPRESSORS[page.compression](data, out=max(lengths) + 1)
        if len(content) not in lengths:
            raise ValueError("it has another number of pixels than the tags say")
        width, height = lengths[len(content)]
        if page.predictor == 3:  # reorders the bytes of floats
            decoded, *_ = page.decode(data, 0)
            return np.asarray(decoded[0])
        rows: Values = np.frombuffer(content, self._stored_dtype).reshape(height, width, samples)
        if page.predictor == 1:
            return rows
        native = rows.astype(page.dtype, copy=False)  # the order of bytes of this machine
        return np.asarray(tifffile.TIFF.UNPREDICTORS[page.predictor](native, axis=-2))

    def _decode_picture(self, data: bytes, allowed: set[Size]) -> Values:
        """Decode a segment in a format that stores its own size, such as JPEG 2000."""
        page = self._page
        # WebP omits an opaque alpha channel.
        options = {"hasalpha": True} if page.compression == _WEBP and self._samples == 4 else {}
        decoded: Values = tifffile.TIFF.DECOMPRESSORS[page.compression](data, **options)
        check_size(decoded.shape[1::-1], allowed)
        return decoded.reshape(*decoded.shape[:2], self._segment_samples)

    @property
    def _packed(self) -> bool:
        """Whether values do not fill whole bytes."""
        return bool(self._page.bitspersample != 8 * self._page.dtype.itemsize)

    @property
    def _stored_dtype(self) -> np.dtype[Any]:
        """Type of the values with the order of bytes in the file."""
        dtype: np.dtype[Any] = self._page.dtype.newbyteorder(self._page.parent.byteorder)
        return dtype

    def _mapped(self, lock: RLock) -> list[Values]:
        """Memory maps of the pages, ``(h, w, samples)`` each."""
        with lock:
            if self._maps is None:
                page, samples = self._page, self._page.samplesperpixel
                height, width = page.imagelength, page.imagewidth
                apart = page.planarconfig == 2
                shape = (samples, height, width) if apart else (height, width, samples)
                with decoding(f"{self._name}: level {self._number}"):
                    maps = [
                        p.parent.filehandle.memmap_array(
                            self._stored_dtype, shape, offset=p.dataoffsets[0]
                        )
                        for p in self._pages
                    ]
                arrays = [np.asarray(m) for m in maps]  # slicing plain arrays is faster
                self._maps = [a.transpose(1, 2, 0) if apart else a for a in arrays]
            return self._maps

    def _colour(self, raw: Values) -> Pixels:
        """Convert stored samples to grey, RGB or bands of 8 bits."""
        page = self._page
        if page.photometric == _KIND.PALETTE:
            return palette_to_rgb(raw.astype(np.uint8, copy=False), page.colormap)
        opaque = None if self._alpha is None else 2.0**page.bitspersample - 1
        pixels = to_bytes(raw, self._white, alpha=opaque)
        if page.photometric == _KIND.SEPARATED:
            return cmyk_to_rgb(pixels)
        if page.photometric == _KIND.MINISWHITE:
            return 255 - pixels
        if self._alpha is None:
            return pixels
        if self._alpha == _PLAIN_ALPHA:
            return over(pixels, self.background)
        return premultiplied_over(pixels, self.background)

    def _check_supported(self) -> None:
        page, samples, kind = self._page, self._samples, self._page.photometric
        readable = {
            _KIND.MINISWHITE: samples == 1,
            _KIND.YCBCR: samples == 3 and page.compression in _JPEG,
            _KIND.PALETTE: samples == 1 and page.bitspersample <= 8,
            _KIND.SEPARATED: samples == 4,
        }
        if not readable.get(kind, kind in _BANDS and 0 < self.channels <= MAX_BANDS):
            raise ImageError(
                f"{self._name} has {samples} channels as {_KIND(kind).name}: only grey, RGB, "
                "palette, CMYK and multispectral TIFFs are read, convert it to one of them"
            )
