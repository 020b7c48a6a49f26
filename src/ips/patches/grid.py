"""Positions of the patches of an image: a regular grid of any patch size and stride.

Patches are numbered row by row from the top left. At the right and bottom edge, ``drop`` keeps only
patches that lie inside the image, and ``pad`` adds a last row and column that cover every pixel and
are filled with background.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from ips.errors import PatchError

Edge = Literal["drop", "pad"]


@dataclass(frozen=True)
class Grid:
    """Square patches of ``patch`` pixels every ``stride`` pixels over ``width`` x ``height``.

    >>> Grid(1500, 1500, patch=50, stride=25).shape  # the paper's N = 3,481
    (59, 59)
    >>> Grid(120, 50, patch=50, stride=50, edge="pad").coords.tolist()
    [[0, 0], [50, 0], [100, 0]]
    """

    width: int
    height: int
    patch: int
    stride: int
    edge: Edge = "drop"

    def __post_init__(self) -> None:
        if self.patch < 1 or self.stride < 1:
            raise PatchError(
                f"patch size {self.patch} and stride {self.stride} must both be at least 1 px"
            )
        if self.edge == "drop" and self.patch > min(self.width, self.height):
            raise PatchError(
                f"a patch of {self.patch} px does not fit into an image of "
                f"{self.width} x {self.height} px: use smaller patches, or pad the edge"
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

    @cached_property
    def coords(self) -> npt.NDArray[np.int64]:
        """Top-left corners, ``(N, 2)`` as x, y."""
        rows, columns = self.shape
        y, x = np.divmod(np.arange(rows * columns, dtype=np.int64), columns)
        return np.stack([x, y], axis=1) * self.stride  # (N, 2)
