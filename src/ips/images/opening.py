"""Choose the reader of an image by the content of the file."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image as PILImage

from ips.errors import ImageError, because, require
from ips.files import is_file
from ips.images.array import ArrayImage, NpyImage
from ips.images.damage import DamagedError
from ips.images.image import Image
from ips.images.pillow import PillowImage, pillow_array
from ips.images.tiff import TiffImage, can_read_ranges
from ips.images.tiff_geometry import check_tables_of_slide
from ips.remote import RemoteFile, address

_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")  # classic and BigTIFF, in both byte orders
_NPY = b"\x93NUMPY"
_SLIDES = {".bif", ".czi", ".dcm", ".mrxs", ".ndpi", ".scn", ".svs", ".svslide", ".vms", ".vmu"}
_SUFFIXES = {".bmp", ".btf", ".jpeg", ".jpg", ".npy", ".png", ".tif", ".tiff", ".webp"} | _SLIDES


def is_image(path: Path) -> bool:
    """Whether a file in a folder is an image, by its suffix; hidden files are not."""
    return is_file(path) and path.suffix.lower() in _SUFFIXES and not path.name.startswith(".")


def open_image(
    source: str | os.PathLike[str] | npt.NDArray[Any] | PILImage.Image,
    *,
    white: float | None = None,
) -> Image:
    """Open an image file, an image of Pillow, or an array ``(h, w)`` or ``(h, w, C)``.

    Only the header is read. OpenSlide reads whole slides, tifffile other TIFFs, Pillow the rest;
    ``.npy`` files are memory-mapped. Of a remote TIFF or SVS, only the parts that are read are
    transferred; other remote files are copied, see `ips.remote`. Transparency is laid on the
    background, palettes and CMYK become RGB, and images that are decoded whole are turned upright
    as their EXIF data says.

    Args:
        source: file, image of Pillow or array.
        white: value of more than 8 bits that becomes 255; 8-bit values stay as they are. By
            default it is the largest value that the file can store (65,535 for 16 bits), or that a
            TIFF says it uses: a MaxSampleValue that is one less than a power of two, such as
            4,095, or OME's SignificantBits. Floats and integers of 32 bits need it.

    Examples:
        >>> open_image(np.zeros((20, 30, 3), np.uint8)).dimensions
        (30, 20)
    """
    if isinstance(source, PILImage.Image):
        return ArrayImage(pillow_array(source), name="image in memory", white=white)
    if isinstance(source, np.ndarray):
        return ArrayImage(source, white=white)
    path = Path(source)
    start, ranges = _inspect(path)
    if ranges:
        return TiffImage(path, white=white)
    if start.startswith(_NPY):
        return NpyImage(path, white=white)
    if find_spec("openslide") is None:  # the extra `slides` is not installed
        if path.suffix.lower() in _SLIDES:
            require("openslide")
        if start.startswith(_TIFF):
            return TiffImage(path, white=white)
        return PillowImage(path, white=white)
    from ips.images.slide import SlideImage, vendor_of

    vendor = vendor_of(path)
    if not start.startswith(_TIFF):
        return SlideImage(path) if vendor else PillowImage(path, white=white)
    if vendor in (None, "generic-tiff"):
        try:
            return TiffImage(path, white=white)
        except DamagedError:
            if vendor is None:
                raise
    check_tables_of_slide(path)
    return SlideImage(path)


def _inspect(path: Path) -> tuple[bytes, bool]:
    """The first bytes of a file, and whether it is a remote TIFF to be read by ranges."""
    if (url := address(path)) is not None:
        with RemoteFile(url) as stream:
            start = _not_empty(stream.read(8), path)
            stream.seek(0)
            return start, start.startswith(_TIFF) and can_read_ranges(stream, path.name)
    if path.is_dir():
        raise ImageError(f"{path} is a folder: give the image file in it")
    try:
        with path.open("rb") as file:
            return _not_empty(file.read(8), path), False
    except FileNotFoundError as error:
        raise ImageError(f"{path} does not exist: check the path") from error
    except OSError as error:
        reason = because(error, remedy="check the path")
        raise ImageError(f"{path} cannot be opened {reason}") from error


def _not_empty(start: bytes, path: Path) -> bytes:
    if not start:
        raise ImageError(f"{path} is empty: copy or export it again")
    return start
