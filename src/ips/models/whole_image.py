"""The whole image of a source, for methods that process it at once.

Letters: N patches, C channels, H and W height and width of the image, h and w those of a patch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ips.errors import PatchError
from ips.nn.embedding import micro_batch
from ips.patches import Coords, Indices, Part, PatchSource
from ips.patches.source import as_index

_MAX_PIXELS = 2**30


def whole_image(source: PatchSource, *, device: torch.device) -> Tensor:
    """Return the area that the patches cover, ``(C, H, W)`` uint8, at the resolution of a patch."""
    if isinstance(source, LoadedImage):
        return source.pixels.to(device)
    H, W = image_size(source)
    if W * H > _MAX_PIXELS:
        raise PatchError(
            f"{source.name}: {W:,} x {H:,} px are too many for a network over the whole image: "
            "choose a coarser patches.level, or use method=ips"
        )
    C, h, w = source.shape
    corners = _corners(source)
    image = np.zeros((C, H, W), dtype=np.uint8)  # assembled in host memory and copied once
    for part in torch.arange(len(source)).split(16 * micro_batch(source.shape, device)):
        patches = source.read(part).cpu().numpy()
        for (x, y), patch in zip(corners[part.numpy()].tolist(), patches, strict=True):
            image[:, y : y + h, x : x + w] = patch
    return torch.from_numpy(image).to(device)


def image_size(source: PatchSource) -> tuple[int, int]:
    """Return H and W of `whole_image`, without reading it."""
    if len(source.shape) == 3 and len(source.parts) > 1:
        raise PatchError(
            f"{source.name}: consists of several images or magnifications, but method=cnn and "
            "method=dps need one whole image: use another method"
        )
    if len(source.shape) != 3 or source.extent is None:
        raise PatchError(
            f"{source.name}: contains features, not pixels, but method=cnn and method=dps need the "
            "whole image: use another method"
        )
    _, h, w = source.shape
    right, bottom = _corners(source).max(axis=0).tolist()
    return bottom + h, right + w


def _corners(source: PatchSource) -> Coords:
    """Top-left corners ``(N, 2)`` in pixels of a patch, counted from the first patch."""
    assert source.extent is not None
    scale = source.shape[-1] / source.extent
    corners: Coords = np.rint((source.coords - source.coords.min(axis=0)) * scale).astype(np.int64)
    return corners


def grid_shape(source: PatchSource) -> tuple[int, int]:
    """Return rows and columns of the patches; anything but a full grid is an error."""
    columns, rows = (len(np.unique(source.coords[:, axis])) for axis in (0, 1))
    if rows * columns != len(source):
        raise PatchError(
            f"{source.name}: its {len(source)} patches are not a full grid, which method=dps and "
            "method=cnn need: use another method"
        )
    return rows, columns


def scaled_size(height: int, width: int, scale: float) -> tuple[int, int]:
    """Return the size of a scaled copy; fractions of a pixel are dropped.

    >>> scaled_size(1200, 1600, 1 / 3)  # traffic signs in Appendix D.5
    (400, 533)
    """
    # The small term compensates rounding errors: a third of 1,200 is 400.
    return max(1, int(height * scale + 1e-6)), max(1, int(width * scale + 1e-6))


def scaled_copy(images: Tensor, scale: float) -> Tensor:
    """Scale ``(B, C, H, W)`` floats; pixels are averaged."""
    H, W = images.shape[-2:]
    size = scaled_size(H, W, scale)
    return F.interpolate(images, size, mode="bilinear", align_corners=False, antialias=True)


def cut(image: Tensor, corners: Coords, size: Sequence[int]) -> Tensor:
    """Cut patches of ``size`` h, w from ``(C, H, W)``, with 0 outside the image: ``(k, C, h, w)``.

    ``corners`` ``(k, 2)`` are x, y of their top-left pixels.
    """
    (h, w), (H, W) = size, image.shape[-2:]
    x, y = torch.from_numpy(corners).to(image.device).T
    left, top = (-corners.min(axis=0, initial=0)).tolist()
    right, bottom = corners.max(axis=0, initial=0).tolist()
    padded = F.pad(image, (left, max(0, right + w - W), top, max(0, bottom + h - H)))
    windows = padded.unfold(1, h, 1).unfold(2, w, 1)  # (C, H', W', h, w), a view
    return windows[:, y + top, x + left].transpose(0, 1).contiguous()


class CentredPatches(PatchSource):
    """A patch around the centre of each cell of an image that is divided into equal cells.

    Cells have whole pixels, so a few columns and rows may be left at the right and lower edge.
    Patches may reach over all four edges of the image, where they are black. The image is not
    kept: each read assembles it anew.

    Args:
        source: patches that cover the image.
        cells: rows and columns of cells.
    """

    def __init__(self, source: PatchSource, cells: tuple[int, int]) -> None:
        grid_shape(source)  # refuses a sample of patches, which is not an image
        self.source, self.cells = source, cells
        self.name, self.extent, self.shape = source.name, source.extent, source.shape
        H, W = image_size(source)
        rows, columns = cells
        self._step = np.array([W // columns, H // rows])

    def __len__(self) -> int:
        rows, columns = self.cells
        return rows * columns

    @cached_property
    def corners(self) -> Coords:
        """Top-left corners ``(N, 2)`` in pixels of a patch, counted from that of the image."""
        y, x = np.divmod(np.arange(len(self)), self.cells[1])
        _, h, w = self.shape
        over = (np.array([w, h]) - self._step) // 2  # how far a patch reaches over its cell
        corners: Coords = np.stack([x, y], axis=1) * self._step - over
        return corners

    @cached_property
    def coords(self) -> Coords:
        corners = np.rint(self.corners * self._downsample).astype(np.int64)
        coords: Coords = corners + self.source.coords.min(axis=0)
        return coords

    @property
    def parts(self) -> tuple[Part, ...]:
        (part,) = self.source.parts
        step = float(self._step.min() * self._downsample)
        return (replace(part, patches=slice(0, len(self)), step=step),)

    @property
    def _downsample(self) -> float:
        assert self.extent is not None
        return self.extent / self.shape[-1]

    def image(self, device: torch.device) -> Tensor:
        """Return the whole image, ``(C, H, W)`` uint8."""
        return whole_image(self.source, device=device)

    def read(self, indices: Indices) -> Tensor:
        index = as_index(indices, len(self), self.name).numpy()
        return cut(self.image(torch.device("cpu")), self.corners[index], self.shape[1:])

    def close(self) -> None:
        self.source.close()


class LoadedImage(PatchSource):
    """A source whose whole image is in memory already.

    Args:
        source: patches that cover the image.
        device: device to put the image on.

    Attributes:
        pixels: ``(C, H, W)`` uint8, on any device.
    """

    def __init__(self, source: PatchSource, *, device: torch.device) -> None:
        self.source, self.coords = source, source.coords
        self.name, self.extent, self.shape = source.name, source.extent, source.shape
        self.pixels = whole_image(source, device=device)

    def __len__(self) -> int:
        return len(self.source)

    def read(self, indices: Indices) -> Tensor:
        return self.source.read(indices)

    def close(self) -> None:
        self.source.close()
