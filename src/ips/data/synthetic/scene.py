"""A large image that is mostly black, as the few things on it: patches are painted when read.

Letters: N patches of the image, k patches asked for, n things on the image, p side of a patch.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ips.patches.grid import Grid
from ips.patches.source import Coords, Indices, as_index


class ScenePatches:
    """The patches of a black image with square cells pasted on it, none of them stored.

    Args:
        cells: ``(n, c, c)`` uint8, in the order of painting: a later one covers an earlier.
        places: ``(n, 2)`` top-left corners as x, y, such that every cell is inside the image.
        grid: the image's size and where its patches are.
        name: what to call the image in messages.
    """

    def __init__(
        self, cells: npt.NDArray[np.uint8], *, places: Coords, grid: Grid, name: str
    ) -> None:
        self.cells = cells
        self.places = places
        self.grid = grid
        self.name = name

    @property
    def coords(self) -> Coords:
        """``(N, 2)`` top-left corners as x, y."""
        return self.grid.coords

    @property
    def extent(self) -> int:
        """Side of a patch in pixels."""
        return self.grid.patch

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one patch: one grey channel."""
        return 1, self.grid.patch, self.grid.patch

    def __len__(self) -> int:
        return len(self.grid)

    def read(self, indices: Indices) -> Tensor:
        """Only these patches, in this order: ``(k, 1, p, p)`` uint8."""
        index = as_index(indices, len(self), self.name).numpy()
        p, c = self.grid.patch, self.cells.shape[-1]
        # By numpy, which gets zeroed pages for nothing; torch would start its threads to fill them.
        canvas = np.zeros((len(index), p, p), dtype=np.uint8)

        touched, things = self._touching
        first = np.searchsorted(touched, index, side="left")
        count = np.searchsorted(touched, index, side="right") - first  # (k,)
        slot = np.repeat(np.arange(len(index)), count)
        before = np.cumsum(count) - count
        thing = things[np.arange(len(slot)) + (first - before)[slot]]

        row, column = np.divmod(index[slot], self.grid.shape[1])
        corner = np.stack([column, row], axis=1) * self.grid.stride
        at = self.places[thing] - corner  # negative where the cell begins before the patch
        start, stop = np.maximum(at, 0), np.minimum(at + c, p)
        pastes = np.column_stack([slot, thing, start, stop, start - at, stop - at])
        for s, t, x0, y0, x1, y1, u0, v0, u1, v1 in pastes.tolist():
            canvas[s, y0:y1, x0:x1] = self.cells[t, v0:v1, u0:u1]
        return torch.from_numpy(canvas).unsqueeze(1)  # (k, 1, p, p)

    def dense(self) -> npt.NDArray[np.uint8]:
        """The whole image, ``(height, width)``: for pictures and small tests only."""
        image = np.zeros((self.grid.height, self.grid.width), dtype=np.uint8)
        c = self.cells.shape[-1]
        for cell, (x, y) in zip(self.cells, self.places.tolist(), strict=True):
            image[y : y + c, x : x + c] = cell
        return image

    @cached_property
    def _touching(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Patches and things that share a pixel, pair by pair: by patch, then as painted."""
        p, stride, c = self.grid.patch, self.grid.stride, self.cells.shape[-1]
        rows, columns = self.grid.shape
        first = np.maximum(-((p - 1 - self.places) // stride), 0)  # (n, 2) column, row
        last = np.minimum((self.places + c - 1) // stride, np.array([columns, rows]) - 1)
        reach = (p + c - 1) // stride + 1  # no thing touches more patches along an axis
        line = first[:, :, None] + np.arange(reach)  # (n, 2, reach)
        inside = line <= last[:, :, None]
        thing, i, j = np.nonzero(inside[:, 1, :, None] & inside[:, 0, None, :])
        patch = line[thing, 1, i] * columns + line[thing, 0, j]
        order = np.argsort(patch, kind="stable")
        return patch[order], thing[order]

    def __getstate__(self) -> dict[str, Any]:
        # What can be worked out again stays behind: it would be most of the bytes.
        state = {key: value for key, value in self.__dict__.items() if key != "_touching"}
        return state | {"grid": dataclasses.replace(self.grid)}
