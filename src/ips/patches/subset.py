"""Some patches of a source, as a source of their own.

Letters: N patches of the source, n of them here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ips.patches.source import Coords, Indices, PatchSource, as_index, release


class PatchSubset:
    """The patches of ``source`` with the numbers ``indices`` ``(n,)``, counted anew from 0."""

    def __init__(self, source: PatchSource, indices: npt.NDArray[np.int64]) -> None:
        self.source = source
        self.indices = indices

    @property
    def name(self) -> str:
        """The source's."""
        return self.source.name

    @property
    def coords(self) -> Coords:
        """``(n, 2)``, where they are in the image."""
        return self.source.coords[self.indices]

    @property
    def extent(self) -> int | None:
        """The source's."""
        return self.source.extent

    @property
    def shape(self) -> tuple[int, ...]:
        """The source's."""
        return self.source.shape

    def __len__(self) -> int:
        return len(self.indices)

    def read(self, indices: Indices) -> Tensor:
        """Only these patches, in this order."""
        index = as_index(indices, len(self), self.name)
        return self.source.read(torch.from_numpy(self.indices)[index])

    def close(self) -> None:
        """Let go of what the source holds open."""
        release(self.source)


def sampled(source: PatchSource, count: int | None, *, seed: int) -> PatchSource:
    """At most ``count`` patches of a source, drawn at random but the same at every call."""
    if count is None or len(source) <= count:
        return source
    rng = np.random.default_rng([seed, len(source)])
    chosen = rng.choice(len(source), count, replace=False)
    return PatchSubset(source, np.sort(chosen).astype(np.int64))
