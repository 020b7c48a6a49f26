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
from ips.images.array import ArrayImage, NpyImage
from ips.images.damage import DamagedError
from ips.images.image import Image
from ips.images.pillow import PillowImage, pillow_array
from ips.images.tiff import TiffImage
from ips.images.tiff_geometry import check_tables_of_slide

_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")  # classic and BigTIFF, in both byte orders
_NPY = b"\x93NUMPY"
_SLIDES = {".bif", ".czi", ".dcm", ".mrxs", ".ndpi", ".scn", ".svs", ".svslide", ".vms", ".vmu"}
_SUFFIXES = {".bmp", ".btf", ".jpeg", ".jpg", ".npy", ".png", ".tif", ".tiff", ".webp"} | _SLIDES


def is_image(path: Path) -> bool:
    """Whether a file in a folder is an image, by its suffix; hidden files are not."""
    return path.is_file() and path.suffix.lower() in _SUFFIXES and not path.name.startswith(".")


def open_image(source: str | os.PathLike[str] | npt.NDArray[Any] | PILImage.Image) -> Image:
    """Open an image file, an image of Pillow, or a uint8 array ``(h, w)`` or ``(h, w, C)``.

    Only the header is read. OpenSlide reads whole slides, tifffile other TIFFs, Pillow the rest;
    ``.npy`` files are memory-mapped.

    >>> open_image(np.zeros((20, 30, 3), np.uint8)).dimensions
    (30, 20)
    """
    if isinstance(source, PILImage.Image):
        return ArrayImage(pillow_array(source), name="image in memory")
    if isinstance(source, np.ndarray):
        return ArrayImage(source)
    path = Path(source)
    start = _first_bytes(path)
    if start.startswith(_NPY):
        return NpyImage(path)
    if find_spec("openslide") is None:  # the extra `slides` is not installed
        if path.suffix.lower() in _SLIDES:
            require("openslide")
        return TiffImage(path) if start.startswith(_TIFF) else PillowImage(path)
    from ips.images.slide import SlideImage, vendor_of

    vendor = vendor_of(path)
    if not start.startswith(_TIFF):
        return SlideImage(path) if vendor else PillowImage(path)
    if vendor in (None, "generic-tiff"):
        try:
            return TiffImage(path)
        except DamagedError:
            if vendor is None:
                raise
    check_tables_of_slide(path)
    return SlideImage(path)


def _first_bytes(path: Path) -> bytes:
    if path.is_dir():
        raise ImageError(f"{path} is a folder: give the image file in it")
    try:
        with path.open("rb") as file:
            start = file.read(8)
    except FileNotFoundError as error:
        raise ImageError(f"{path} does not exist: check the path") from error
    except OSError as error:
        reason = because(error, remedy="check the path")
        raise ImageError(f"{path} cannot be opened {reason}") from error
    if not start:
        raise ImageError(f"{path} is empty: copy or export it again")
    return start
