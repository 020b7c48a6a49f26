"""Pixels of a region at a level, from any image file, in OpenSlide's words.

::

    image.py       what every image can do: dimensions, levels, mpp, read_region
    opening.py     open_image: which reader a file gets
    array.py       arrays in memory, and .npy files
    mapped.py      memory maps that do not pile up
    pillow.py      PNG, JPEG and other formats that are decoded whole
    tiff*.py       TIFF, BigTIFF and OME-TIFF, tile by tile
    slide.py       whole slides through OpenSlide
    resolution.py  micrometres per pixel and magnification instead of levels
"""

from ips.images.array import ArrayImage, NpyImage
from ips.images.image import Image
from ips.images.opening import is_image, open_image
from ips.images.pillow import PillowImage
from ips.images.resolution import downsample_for, read_at
from ips.images.tiff import TiffImage

__all__ = [
    "ArrayImage",
    "Image",
    "NpyImage",
    "PillowImage",
    "TiffImage",
    "downsample_for",
    "is_image",
    "open_image",
    "read_at",
]
