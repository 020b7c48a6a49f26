"""The patches of an image file, read on request.

Letters: N patches of an image, C channels, k requested patches.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ips.errors import PatchError, shown
from ips.images import Channels, Image, read_at
from ips.images.array import WholeImage
from ips.images.colour import channel_count, to_channels
from ips.patches.source import Coords, Indices, Part, PatchSource, as_index
from ips.patches.thumbnail import shrink_image

Edge = Literal["drop", "pad", "fit"]

_MAX_SIDE = 2**20  # of a patch, and of the distance between two
MAX_PATCHES = 2**28  # 4 GB of coordinates


@dataclass(frozen=True)
class Grid:
    """Square patches of ``patch`` pixels every ``stride`` pixels over ``width`` x ``height``.

    Patches are numbered row by row from the top left. ``drop`` keeps only patches inside the image;
    ``pad`` adds a last row and column so that every pixel is covered; ``fit`` adds them too, moved
    back so that they end with the image. ``shift`` moves all patches along x and y, but none over
    an edge of the image that it did not cross before.

    >>> Grid(1500, 1500, patch=50, stride=25).shape  # the paper's N = 3,481
    (59, 59)
    >>> Grid(120, 50, patch=50, stride=50, edge="pad").coords.tolist()
    [[0, 0], [50, 0], [100, 0]]
    >>> Grid(120, 50, patch=50, stride=50, edge="fit").coords.tolist()
    [[0, 0], [50, 0], [70, 0]]
    """

    width: int
    height: int
    patch: int
    stride: int
    edge: Edge = "drop"
    shift: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        if not (1 <= self.patch <= _MAX_SIDE and 1 <= self.stride <= _MAX_SIDE):
            raise PatchError(
                f"patch size {shown(self.patch)} and stride {shown(self.stride)} must both be "
                f"between 1 and {_MAX_SIDE:,} px"
            )
        if self.edge == "drop" and self.patch > min(self.width, self.height):
            raise PatchError(
                f"a patch of {self.patch} px does not fit into an image of "
                f"{self.width} x {self.height} px: use smaller patches, or pad the edge"
            )
        if (count := self._count(self.height) * self._count(self.width)) > MAX_PATCHES:
            raise PatchError(
                f"an image of {self.width} x {self.height} px has {count:,} patches of "
                f"{self.patch} px every {self.stride} px, which are too many: use a larger stride"
            )

    def _count(self, side: int) -> int:
        span = max(side - self.patch, 0)
        if self.edge == "drop":
            return span // self.stride + 1
        # If the stride leaves gaps, the last patch could start outside the image: leave it out.
        return min(-(-span // self.stride) + 1, -(-side // self.stride))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return self._count(self.height), self._count(self.width)

    def __len__(self) -> int:
        rows, columns = self.shape
        return rows * columns

    def shifted(self, shift: tuple[float, float]) -> Grid:
        """The same patches, moved along x and y by a fraction of the stride."""
        x, y = (round(part * self.stride) for part in shift)
        return replace(self, shift=(x, y))

    @cached_property
    def lines(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Left edges of the columns and upper edges of the rows."""
        x, y = self.shift
        return self._line(self.width, x), self._line(self.height, y)

    def _line(self, side: int, shift: int) -> npt.NDArray[np.int64]:
        line, inside = np.arange(self._count(side), dtype=np.int64) * self.stride, side - self.patch
        if self.edge == "fit":
            line = np.minimum(line, max(inside, 0))
        return np.clip(line + shift, 0, max(int(line[-1]), inside)) if shift else line

    @cached_property
    def coords(self) -> npt.NDArray[np.int64]:
        """Top-left corners, ``(N, 2)`` as x, y."""
        x, y = np.meshgrid(*self.lines)  # (rows, columns) each
        return np.stack([x.ravel(), y.ravel()], axis=1)  # (N, 2)


class ImagePatches(PatchSource):
    """The patches on a regular grid over the scanned region of an image.

    Args:
        image: image to read from.
        patch_size: side of a patch in pixels at the reading resolution.
        stride: distance between patches in the same pixels, ``patch_size`` by default.
        downsample: level-0 pixels per pixel of a patch, from :func:`ips.images.downsample_for`.
        edge: ``drop`` patches that leave the image, ``pad`` them with background, or ``fit`` them
            in by moving them back.
        channels: ``rgb`` or ``grey`` to convert patches of other images, ``as-is`` to leave them.
    """

    def __init__(
        self,
        image: Image,
        *,
        patch_size: int = 256,
        stride: int | None = None,
        downsample: float = 1.0,
        edge: Edge = "drop",
        channels: Channels = "as-is",
    ) -> None:
        self.image = image
        self.channels = channels
        self.patch_size = patch_size
        self.downsample = downsample
        if not 2.0**-10 <= downsample <= 2.0**20:
            raise PatchError(
                f"{image.name}: {downsample:g} level-0 pixels per pixel of a patch are not a "
                "resolution that can be read: choose another"
            )
        try:
            width, height = _grid_size(image, downsample)
            stride = patch_size if stride is None else stride
            self.grid = Grid(width, height, patch=patch_size, stride=stride, edge=edge)
        except PatchError as error:
            raise PatchError(f"{image.name}: {error}") from None
        self.coords = self._corners()
        self.name = image.name
        self.extent: int = round(patch_size * downsample)
        self.shape = channel_count(image.channels, channels), patch_size, patch_size

    @property
    def parts(self) -> tuple[Part, ...]:
        """The image, at the resolution that is read."""
        return (
            Part(
                name=self.name,
                patches=slice(0, len(self)),
                area=self.image.bounds,
                size=self.image.dimensions,
                step=self.grid.stride * self.downsample,
                extent=self.extent,
                mpp=self.image.mpp,
                patch_side=self.extent,
                thumbnail=partial(shrink_image, self.image),
                picture=self.image,
            ),
        )

    def _corners(self) -> Coords:
        """Top-left corners in full-resolution pixels, ``(N, 2)``."""
        corners: Coords = np.rint(self.grid.coords * self.downsample).astype(np.int64)
        return corners + np.array(self.image.bounds[:2], dtype=np.int64)

    def shifted(self, shift: tuple[float, float]) -> ImagePatches:
        moved = copy(self)
        moved.grid = self.grid.shifted(shift)
        moved.coords = moved._corners()
        return moved

    def coarse(self, side: int) -> ImagePatches:
        if self.patch_size <= side:
            return self
        small = copy(self)
        small.patch_size, small.shape = side, (self.shape[0], side, side)
        small.downsample = self.downsample * self.patch_size / side
        return small

    def __len__(self) -> int:
        return len(self.grid)

    def read(self, indices: Indices) -> Tensor:
        """Return only these patches, in this order: ``(k, C, h, w)`` uint8."""
        index = as_index(indices, len(self), self.name).numpy()
        corners = self.coords[index]  # (k, 2)
        if isinstance(self.image, WholeImage) and self._can_slice(corners):
            patches = self.image.cut(corners, self.patch_size)
            if self.shape[0] != self.image.channels:
                converted = to_channels(np.moveaxis(patches, 1, -1), self.channels)
                patches = np.ascontiguousarray(np.moveaxis(converted, -1, 1))
            return torch.from_numpy(patches)
        try:
            out = np.empty((len(index), *self.shape), dtype=np.uint8)  # (k, C, h, w)
        except (MemoryError, ValueError) as error:
            raise PatchError(
                f"{self.name}: {len(index)} patches of {self.patch_size} px do not fit into "
                "memory: use smaller patches"
            ) from error
        size = self.patch_size, self.patch_size
        for i in self._file_order(corners):
            x, y = corners[i].tolist()
            region = read_at(self.image, (x, y), downsample=self.downsample, size=size)
            out[i] = to_channels(region, self.channels).transpose(2, 0, 1)  # (h, w, C) -> (C, h, w)
        return torch.from_numpy(out)

    def close(self) -> None:
        """Close the file; a later read opens it again."""
        self.image.close()

    def _can_slice(self, corners: Coords) -> bool:
        inside = corners + self.patch_size <= self.image.dimensions  # (k, 2)
        return self.downsample == 1 and len(corners) > 0 and bool(inside.all())

    def _file_order(self, corners: Coords) -> list[int]:
        """Order ``corners`` tile by tile, so that each tile is decoded only once."""
        level = self.image.get_best_level_for_downsample(self.downsample)
        tile = self.image.tile_size(level)
        if tile is None:
            return list(range(len(corners)))
        spread = np.array(tile) * self.image.level_downsamples[level]  # in level-0 pixels
        column, row = (corners / spread).astype(np.int64).T
        order: list[int] = np.lexsort((column, row)).tolist()
        return order


def _grid_size(image: Image, downsample: float) -> tuple[int, int]:
    """Width and height of the scanned region in pixels at the reading resolution."""
    _, _, width, height = image.bounds
    level = image.get_best_level_for_downsample(downsample)
    if downsample == image.level_downsamples[level] and (width, height) == image.dimensions:
        return image.level_dimensions[level]
    # The last fraction of a pixel is dropped; the small term compensates rounding errors.
    return int(width / downsample + 1e-6), int(height / downsample + 1e-6)
