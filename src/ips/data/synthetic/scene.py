"""A large, mostly black image, stored as a list of small cells; patches are drawn when read.

Letters: N patches of the image, k patches to read, n cells, c side of a cell, p side of a patch.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ips.patches.image import Grid
from ips.patches.source import Coords, Indices, Part, PatchSource, as_index
from ips.patches.thumbnail import shrink_region


class ScenePatches(PatchSource):
    """Patches of a black image with square cells pasted onto it.

    Args:
        cells: ``(n, c, c)`` uint8, in drawing order: later cells cover earlier ones.
        places: ``(n, 2)`` top-left corners of the cells as x, y; every cell is inside the image.
        grid: size of the image and its patch grid.
        name: name of the image in error messages.
    """

    def __init__(
        self, cells: npt.NDArray[np.uint8], *, places: Coords, grid: Grid, name: str
    ) -> None:
        self.cells, self.places, self.grid, self.name = cells, places, grid, name
        self.extent: int = grid.patch
        self.shape = 1, grid.patch, grid.patch

    @cached_property
    def coords(self) -> Coords:
        return self.grid.coords

    @property
    def parts(self) -> tuple[Part, ...]:
        width, height = self.grid.width, self.grid.height
        return (
            Part(
                name=self.name,
                patches=slice(0, len(self)),
                area=(0, 0, width, height),
                size=(width, height),
                step=self.grid.stride,
                extent=self.extent,
                mpp=None,
                patch_side=self.extent,
                thumbnail=partial(shrink_region, self._region, width, height),
            ),
        )

    def shifted(self, shift: tuple[float, float]) -> ScenePatches:
        grid = self.grid.shifted(shift)
        return ScenePatches(self.cells, places=self.places, grid=grid, name=self.name)

    @property
    def known_blank(self) -> npt.NDArray[np.bool_]:
        found = np.ones(len(self), dtype=np.bool_)
        found[self._overlaps[0]] = False
        return found

    def __len__(self) -> int:
        return len(self.grid)

    def read(self, indices: Indices) -> Tensor:
        """Read these patches in this order: ``(k, 1, p, p)`` uint8."""
        index = as_index(indices, len(self), self.name).numpy()
        p, c = self.grid.patch, self.cells.shape[-1]
        # numpy gets zeroed memory pages for free; torch would start threads to fill them.
        canvas = np.zeros((len(index), p, p), dtype=np.uint8)

        touched, cells = self._overlaps
        first = np.searchsorted(touched, index, side="left")
        count = np.searchsorted(touched, index, side="right") - first  # (k,)
        slot = np.repeat(np.arange(len(index)), count)
        before = np.cumsum(count) - count
        cell = cells[np.arange(len(slot)) + (first - before)[slot]]

        x, y = self.grid.lines
        row, column = np.divmod(index[slot], len(x))
        corner = np.stack([x[column], y[row]], axis=1)
        at = self.places[cell] - corner  # negative if the cell begins before the patch
        start, stop = np.maximum(at, 0), np.minimum(at + c, p)
        pastes = np.column_stack([slot, cell, start, stop, start - at, stop - at])
        for s, n, x0, y0, x1, y1, u0, v0, u1, v1 in pastes.tolist():
            canvas[s, y0:y1, x0:x1] = self.cells[n, v0:v1, u0:u1]
        return torch.from_numpy(canvas).unsqueeze(1)  # (k, 1, p, p)

    def dense(self) -> npt.NDArray[np.uint8]:
        """Draw the whole image, ``(height, width)``: for pictures and small tests only."""
        return self._region(0, 0, self.grid.width, self.grid.height)[..., 0]

    def _region(self, x: int, y: int, w: int, h: int) -> npt.NDArray[np.uint8]:
        c = self.cells.shape[-1]
        # A margin of one cell around the region, so that no cell has to be cut.
        canvas = np.zeros((h + 2 * c, w + 2 * c, 1), dtype=np.uint8)
        at = self.places - (x, y) + c  # (n, 2)
        touching = ((at > 0) & (at < (w + c, h + c))).all(axis=1)
        for cell, (u, v) in zip(self.cells[touching], at[touching].tolist(), strict=True):
            canvas[v : v + c, u : u + c, 0] = cell
        return canvas[c : c + h, c : c + w]

    @cached_property
    def _overlaps(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Pairs of patches and cells that overlap, sorted by patch, then in drawing order."""
        p, c = self.grid.patch, self.cells.shape[-1]
        columns = self.grid.shape[1]
        axes = list(zip(self.grid.lines, self.places.T, strict=True))
        first = np.stack([np.searchsorted(line, at - p, "right") for line, at in axes], axis=1)
        last = np.stack([np.searchsorted(line, at + c, "left") - 1 for line, at in axes], axis=1)
        reach = int((last - first).max(initial=0)) + 1  # most patches that a cell overlaps
        line = first[:, :, None] + np.arange(reach)  # (n, 2, reach), column and row
        inside = line <= last[:, :, None]
        cell, i, j = np.nonzero(inside[:, 1, :, None] & inside[:, 0, None, :])
        patch = line[cell, 1, i] * columns + line[cell, 0, j]
        order = np.argsort(patch, kind="stable")
        return patch[order], cell[order]

    def __getstate__(self) -> dict[str, Any]:
        # Derived values are recomputed after unpickling: they would be most of the bytes.
        state = self.__dict__ | {"grid": dataclasses.replace(self.grid)}
        return {key: value for key, value in state.items() if key not in ("_overlaps", "coords")}
