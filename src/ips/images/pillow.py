"""PNG, JPEG, BMP, WebP and other formats that Pillow reads.

These formats have no tiles, so the first read decodes the whole image and keeps it. If it does not
fit into memory, convert it to a tiled TIFF.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image as PILImage
from PIL import ImageOps, UnidentifiedImageError

from ips.errors import ImageError
from ips.images.array import WholeImage, as_pixels
from ips.images.colour import over
from ips.images.damage import decoding
from ips.images.image import Pixels

#: Pillow warns of a "decompression bomb" at 0.09 gigapixels; real images are larger than that.
MAX_PIXELS = 2_000_000_000

_GREY = {"1", "L", "LA", "La"}
_DEEP = {"I", "F", "I;16", "I;16B", "I;16L", "I;16N"}
_LIMIT_LOCK = threading.Lock()


class PillowImage(WholeImage):
    """An image that Pillow decodes whole; an EXIF rotation is not applied.

    Threads wait while the first read decodes. After that they slice one array without a lock.
    """

    decoded_whole = True

    def __init__(self, path: Path) -> None:
        self.path = path
        with _opened(path) as image:
            channels = 1 if image.mode in _GREY else 3
            super().__init__(path.name, size=image.size, channels=channels)

    def _open(self) -> Pixels:
        with decoding(self.name), _opened(self.path) as image:
            if image.format == "PNG":  # Pillow compares no checksums of pixels when it decodes
                image.verify()
        with decoding(self.name), _opened(self.path) as image:
            mode = "L" if self.channels == 1 else "RGB"
            if image.has_transparency_data:
                pixels = over(np.asarray(image.convert(f"{mode}A")), self.background)
            else:
                pixels = np.asarray(image.convert(mode))
            return as_pixels(pixels, self.name)


def pillow_array(image: PILImage.Image) -> npt.NDArray[Any]:
    """The pixels of an image of Pillow, upright, as `PillowImage` has those of a file."""
    upright = ImageOps.exif_transpose(image)
    if upright.mode.startswith(("I", "F")):
        return np.asarray(upright)
    mode = "L" if upright.mode in _GREY else "RGB"
    if upright.has_transparency_data:
        return over(np.asarray(upright.convert(f"{mode}A")), PillowImage.background)
    return np.asarray(upright.convert(mode))


def _opened(path: Path) -> PILImage.Image:
    """Open a file and read its header; raise if it is too large or not 8 bits deep."""
    with decoding(path.name), _LIMIT_LOCK:  # Pillow's limit is global: lift it and restore it
        limit, PILImage.MAX_IMAGE_PIXELS = PILImage.MAX_IMAGE_PIXELS, None
        try:
            image = PILImage.open(path)
        except UnidentifiedImageError as error:
            raise ImageError(
                f"{path.name} has no known image format, or is damaged: convert it to PNG, JPEG "
                "or TIFF"
            ) from error
        finally:
            PILImage.MAX_IMAGE_PIXELS = limit
    width, height = image.size
    # Pillow reduces a 16-bit colour PNG to 8 bits without a warning; only the raw mode shows it.
    raw = str(image.tile[0].args) if image.tile else ""
    problem = None
    if width * height > MAX_PIXELS:
        problem = (
            f"has {width} x {height} px, and {image.format} can only be decoded whole: "
            "convert it to a tiled TIFF"
        )
    elif image.mode in _DEEP or ";16" in raw:
        depth = "uint16" if "16" in image.mode + raw else {"I": "int32"}.get(image.mode, "float32")
        problem = (
            f"is {depth}, but only 8-bit images are read: scale it to 0 to 255 and save it as uint8"
        )
    if problem:
        image.close()
        raise ImageError(f"{path.name} {problem}")
    return image
