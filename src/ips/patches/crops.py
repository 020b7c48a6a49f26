"""The pixels of patches as people see them, also of features whose slide is known.

Letters: C channels, k patches.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ips.errors import PatchError
from ips.images import read_at
from ips.patches.source import Indices, PatchSource, as_index

_SIDE = 256  # largest side of a crop of features, whose patches may be large


def has_pixels(source: PatchSource) -> bool:
    """Whether `read_crops` can show the patches: they are pixels, or lie on a known slide."""
    if len(source.shape) == 3:
        return True
    return all(part.picture is not None and part.extent is not None for part in source.parts)


def read_crops(source: PatchSource, indices: Indices) -> npt.NDArray[np.uint8]:
    """The pixels ``(k, C, h, w)`` of patches: as the model reads them, or from the slide."""
    if len(source.shape) == 3:
        return source.read(indices).cpu().numpy()
    index = as_index(indices, len(source), source.name).numpy()
    crops = []
    for i in index.tolist():
        part = next(part for part in source.parts if part.patches.start <= i < part.patches.stop)
        if part.picture is None or part.extent is None:
            raise PatchError(
                f"{source.name}: holds features, not pixels: there are no patches to show"
            )
        side = min(part.extent, _SIDE)
        x, y = source.coords[i].tolist()
        pixels = read_at(part.picture, (x, y), downsample=part.extent / side, size=(side, side))
        crops.append(pixels.transpose(2, 0, 1))  # (C, h, w)
    return np.stack(crops) if crops else np.empty((0, 3, 1, 1), np.uint8)
