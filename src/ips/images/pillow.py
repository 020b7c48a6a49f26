"""PNG, JPEG, BMP, WebP and other formats that Pillow reads.

These formats have no tiles, so the first read decodes the whole image and keeps it. If it does not
fit into memory, convert it to a tiled TIFF.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import numpy.typing as npt
from PIL import Image as PILImage
from PIL import ImageOps, UnidentifiedImageError
from PIL.ImageFile import ImageFile

from ips.errors import ImageError
from ips.images.array import WholeImage, as_pixels
from ips.images.colour import over, to_bytes, white_level
from ips.images.damage import decoding
from ips.images.image import Pixels
from ips.remote import local_file

#: Pillow warns of a "decompression bomb" at 0.09 gigapixels; real images are larger than that.
MAX_PIXELS = 2_000_000_000

_GREY = {"1", "L", "LA", "La", "I", "F", "I;16", "I;16B", "I;16L", "I;16N"}
_ORIENTATION = 274  # EXIF tag
_OPAQUE = 2**16 - 1  # full opacity of a PNG of 16 bits
_LIMIT_LOCK = threading.Lock()


class PillowImage(WholeImage):
    """An image that Pillow decodes whole, turned upright as its EXIF data says.

    Threads wait while the first read decodes. After that they slice one array without a lock.
    """

    decoded_whole = True

    path: Path

    def __init__(self, path: Path, *, white: float | None = None) -> None:
        self.path = path
        with _opened(path) as image:
            self._white = white_level(_dtype(image), name=path.name, white=white)
            self.bits = 8 * _dtype(image).itemsize
            self.orientation = _orientation(image)
            # Pillow opens grey with opacity, 16 bits each, as RGBA.
            grey = image.mode in _GREY or _raw_mode(image).startswith("LA")
            width, height = image.size
            size = (height, width) if self.orientation >= 5 else (width, height)
            super().__init__(path.name, size=size, channels=1 if grey else 3)

    def _open(self) -> Pixels:
        with decoding(self.name), _opened(self.path) as image:
            if image.format == "PNG":  # Pillow compares no checksums of pixels when it decodes
                image.verify()
        with decoding(self.name), _opened(self.path) as image:
            pixels = self._decode(image) if self._white is None else self._decode_deep(image)
        return as_pixels(_upright(pixels, self.orientation), self.name)

    def _decode(self, image: PILImage.Image) -> Pixels:
        mode = "L" if self.channels == 1 else "RGB"
        if image.has_transparency_data:
            return over(np.asarray(image.convert(f"{mode}A")), self.background)
        return np.asarray(image.convert(mode))

    def _decode_png(self) -> npt.NDArray[Any]:
        with local_file(self.path) as file:
            content = file.read_bytes()
        return np.asarray(imagecodecs.png_decode(content))

    def _decode_deep(self, image: PILImage.Image) -> Pixels:
        """Decode more than 8 bits, which Pillow reduces to 8 in colour."""
        values: npt.NDArray[Any] = (
            self._decode_png() if image.format == "PNG" else np.asarray(image)
        )
        values = values.reshape(*values.shape[:2], -1)
        if values.shape[2] > self.channels:
            return over(to_bytes(values, self._white, alpha=_OPAQUE), self.background)
        return to_bytes(values, self._white)


def _raw_mode(image: ImageFile) -> str:
    """How the values are stored, such as ``RGB;16B``; mode says only what Pillow makes of them."""
    return str(image.tile[0].args) if image.tile else ""


def _dtype(image: ImageFile) -> np.dtype[Any]:
    # The formats read here that Pillow opens with 32-bit integers store 16 bits.
    deep = image.mode.startswith("I") or ";16" in _raw_mode(image)
    return np.dtype("uint16" if deep else "float32" if image.mode == "F" else "uint8")


def _orientation(image: PILImage.Image) -> int:
    """EXIF orientation of an image that is not decoded yet; 1 if it states none."""
    stored = image.info.get("exif")
    found: Any = None
    if stored:
        with suppress(Exception):  # damaged EXIF data says nothing about the pixels
            exif = PILImage.Exif()
            exif.load(stored)
            found = exif.get(_ORIENTATION)
    return found if isinstance(found, int) and 1 <= found <= 8 else 1


def _upright(pixels: Pixels, orientation: int) -> Pixels:
    """Mirror and turn stored pixels ``(h, w)`` or ``(h, w, C)`` by an EXIF orientation."""
    if orientation == 1:
        return pixels
    if orientation >= 5:
        pixels = pixels.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels)


def pillow_array(image: PILImage.Image) -> npt.NDArray[Any]:
    """The pixels of an image of Pillow, upright, as `PillowImage` has those of a file."""
    upright = ImageOps.exif_transpose(image)
    if upright.mode == "I":
        return np.asarray(upright).clip(0, _OPAQUE).astype(np.uint16)  # see `_dtype`
    if upright.mode.startswith(("I", "F")):
        return np.asarray(upright)
    mode = "L" if upright.mode in _GREY else "RGB"
    if upright.has_transparency_data:
        return over(np.asarray(upright.convert(f"{mode}A")), PillowImage.background)
    return np.asarray(upright.convert(mode))


def _opened(path: Path) -> ImageFile:
    """Open a file and read its header; raise if it is too large."""
    with decoding(path.name), _LIMIT_LOCK:  # Pillow's limit is global: lift it and restore it
        limit, PILImage.MAX_IMAGE_PIXELS = PILImage.MAX_IMAGE_PIXELS, None
        try:
            with local_file(path) as file:
                image = PILImage.open(file)
        except UnidentifiedImageError as error:
            raise ImageError(
                f"{path.name} has no known image format, or is damaged: convert it to PNG, JPEG "
                "or TIFF"
            ) from error
        finally:
            PILImage.MAX_IMAGE_PIXELS = limit
    width, height = image.size
    if width * height > MAX_PIXELS:
        image.close()
        raise ImageError(
            f"{path.name} has {width} x {height} px, and {image.format} can only be decoded whole: "
            "convert it to a tiled TIFF"
        )
    return image
