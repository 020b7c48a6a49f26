"""Read the pixels of a region at a level from any image file, with the names of OpenSlide.

::

    image.py       base class: dimensions, levels, mpp, read_region
    opening.py     open_image chooses a reader for a file
    array.py       arrays in memory and .npy files
    pillow.py      PNG, JPEG and other formats that are decoded whole
    tiff*.py       TIFF, BigTIFF and OME-TIFF, tile by tile, checked against their tags
    slide.py       whole slides through OpenSlide
    resolution.py  read by micrometres per pixel, magnification or scale
    colour.py      transparency, CMYK, palettes and 16 bits to grey, RGB or bands of 8 bits
    damage.py      one error message for damaged files
"""

from ips.images.array import ArrayImage, NpyImage
from ips.images.colour import Channels
from ips.images.image import Image
from ips.images.opening import is_image, open_image
from ips.images.pillow import PillowImage
from ips.images.resolution import downsample_for, read_at
from ips.images.tiff import TiffImage

__all__ = [
    "ArrayImage",
    "Channels",
    "Image",
    "NpyImage",
    "PillowImage",
    "TiffImage",
    "downsample_for",
    "is_image",
    "open_image",
    "read_at",
]
