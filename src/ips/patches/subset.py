"""A subset of the patches of a source, as a source of its own.

Letters: n patches of the subset.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ips.patches.source import Coords, Indices, Part, PatchSource, as_index


class PatchSubset(PatchSource):
    """The patches ``indices`` ``(n,)`` of ``source``, renumbered from 0."""

    def __init__(self, source: PatchSource, indices: npt.NDArray[np.int64]) -> None:
        self.source = source
        self.indices = indices
        self.name, self.extent, self.shape = source.name, source.extent, source.shape

    @cached_property
    def coords(self) -> Coords:
        """``(n, 2)`` top-left corners in the image."""
        return self.source.coords[self.indices]

    @property
    def parts(self) -> tuple[Part, ...]:
        """The image of ``source``, all of it."""
        (part,) = self.source.parts
        return (replace(part, patches=slice(0, len(self))),)

    def __len__(self) -> int:
        return len(self.indices)

    def read(self, indices: Indices) -> Tensor:
        """Return only these patches, in this order."""
        index = as_index(indices, len(self), self.name)
        return self.source.read(torch.from_numpy(self.indices)[index])

    def close(self) -> None:
        """Close the file of ``source``."""
        self.source.close()


def sampled(source: PatchSource, count: int | None, *, seed: int) -> PatchSource:
    """Draw at most ``count`` patches of a source at random, reproducibly."""
    if count is None or len(source) <= count:
        return source
    rng = np.random.default_rng([seed, len(source)])
    chosen = rng.choice(len(source), count, replace=False)
    return PatchSubset(source, np.sort(chosen).astype(np.int64))
