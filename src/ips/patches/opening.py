"""Open any supported file as patches."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy.typing as npt
from PIL import Image as PILImage
from torch import Tensor

from ips.files import split_address
from ips.images import Channels, Image, downsample_for, open_image
from ips.patches.features import open_features
from ips.patches.image import Edge, ImagePatches
from ips.patches.joined import JoinedPatches
from ips.patches.source import PatchSource

FEATURE_SUFFIXES = (".h5", ".hdf5")

ImageLike = str | os.PathLike[str] | npt.NDArray[Any] | PILImage.Image | Tensor | Image
"""What can be opened as an image: a file, or pixels in memory."""


def open_patches(
    source: ImageLike,
    *,
    patch_size: int = 256,
    stride: int | None = None,
    level: int | None = None,
    mpp: float | None = None,
    magnification: float | Sequence[float] | None = None,
    scale: float | Sequence[float] | None = None,
    edge: Edge = "drop",
    channels: Channels = "as-is",
    white: float | None = None,
    slide_mpp: float | None = None,
) -> PatchSource:
    """Open the patches of an image of any size; none is in memory until it is read.

    Args:
        source: image, slide or HDF5 feature file, array ``(h, w)`` or ``(h, w, C)``, image of
            Pillow, tensor ``(h, w)`` or ``(C, h, w)``, or open image. For a feature file all other
            arguments but ``slide_mpp`` are ignored.
        patch_size: side of a patch in pixels at the reading resolution.
        stride: distance between patches in the same pixels, ``patch_size`` by default.
        level: pyramid level to read; 0, the full resolution, by default.
        mpp: micrometres per pixel to read at, instead of ``level``.
        magnification: magnification to read at, such as 20, instead of ``level``; the patches of
            several, such as ``[20, 5]``, are one bag.
        scale: part of the full resolution to read at, such as 0.5, instead of ``level``; the
            patches of several, such as ``[1, 0.5]``, are one bag.
        edge: ``drop`` patches that leave the image, ``pad`` them with background, or ``fit`` them
            in by moving them back.
        channels: ``rgb`` or ``grey`` to convert patches of other images, ``as-is`` to leave them.
        white: value of more than 8 bits that becomes 255, see `ips.images.open_image`; an open
            image has its own.
        slide_mpp: micrometres per full-resolution pixel, for a feature file with coordinates in
            micrometres.

    Examples:
        >>> import numpy as np
        >>> patches = open_patches(np.zeros((1500, 1500), np.uint8), patch_size=50, stride=25)
        >>> len(patches), patches.read([0, 3480]).shape
        (3481, torch.Size([2, 1, 50, 50]))
    """
    if isinstance(source, str | os.PathLike):
        path, _ = split_address(os.fspath(source))
        if path.suffix.lower() in FEATURE_SUFFIXES:
            return open_features(os.fspath(source), mpp=slide_mpp)
    if isinstance(source, Tensor):
        source = source.detach().cpu().numpy()
        source = source.transpose(1, 2, 0) if source.ndim == 3 else source  # (h, w, C)
    image = source if isinstance(source, Image) else open_image(source, white=white)

    def at(magnification: float | None, scale: float | None) -> ImagePatches:
        return ImagePatches(
            image,
            patch_size=patch_size,
            stride=stride,
            downsample=downsample_for(
                image, level=level, mpp=mpp, magnification=magnification, scale=scale
            ),
            edge=edge,
            channels=channels,
        )

    powers, scales = _listed(magnification), _listed(scale)
    sources = [at(*resolution) for resolution in product(powers, scales)]
    if len(sources) == 1:
        return sources[0]
    several = [value for value in (*powers, *scales) if value is not None]
    return JoinedPatches(sources, name=image.name, magnifications=several)


def _listed(value: float | Sequence[float] | None) -> list[float | None]:
    return [value] if value is None or isinstance(value, int | float) else list(value)
