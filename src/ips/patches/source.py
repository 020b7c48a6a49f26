"""A bag of patches that can be read by index: the one thing selection needs of an image.

Letters: N patches of an image, C channels, D features, k patches asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ips.errors import PatchError

Coords = npt.NDArray[np.int64]
Indices = Sequence[int] | npt.NDArray[np.int64] | Tensor


@runtime_checkable
class PatchSource(Protocol):
    """N patches of one image, none of them in memory until it is read.

    A source opens its file at the first ``read``, can be pickled into a worker (before or after
    that), and may be read from several threads.
    """

    @property
    def name(self) -> str:
        """What to call this image in a message: usually the file's name."""
        ...

    @property
    def coords(self) -> Coords:
        """``(N, 2)`` top-left corners as x, y in full-resolution pixels."""
        ...

    @property
    def extent(self) -> int | None:
        """Side of a patch in full-resolution pixels; None where a feature file does not say."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one patch: ``(C, h, w)`` pixels or ``(D,)`` features."""
        ...

    def __len__(self) -> int: ...

    def read(self, indices: Indices) -> Tensor:
        """Only these patches, in this order: ``(k, C, h, w)`` uint8 or ``(k, D)`` floats."""
        ...


def release(source: PatchSource) -> None:
    """Let go of what a source holds open, if it holds anything; it opens again when read."""
    close: Callable[[], None] | None = getattr(source, "close", None)
    if close is not None:
        close()


class MemoryPatches:
    """Patches that are in memory already: the simplest source, and the double for tests.

    Args:
        patches: ``(N, C, h, w)`` uint8 pixels or ``(N, D)`` features, on any device.
        coords: ``(N, 2)``; where the image's layout is unknown, patches stand in one row.
        extent: side of a patch in full-resolution pixels, the patch's own side by default.
        name: what to call it in messages.
    """

    def __init__(
        self,
        patches: Tensor,
        *,
        coords: Coords | None = None,
        extent: int | None = None,
        name: str = "patches in memory",
    ) -> None:
        if patches.dim() not in (2, 4):
            raise PatchError(
                f"{name}: expected patches (N, C, h, w) or features (N, D), "
                f"got {tuple(patches.shape)}"
            )
        self.patches = patches
        self.name = name
        pixels = patches.dim() == 4
        self.extent = patches.shape[-1] if extent is None and pixels else extent
        if coords is None:
            step = self.extent or 1
            x = np.arange(len(patches), dtype=np.int64) * step
            coords = np.stack([x, np.zeros_like(x)], axis=1)
        if len(coords) != len(patches):
            raise PatchError(f"{name}: {len(patches)} patches but {len(coords)} coordinates")
        self.coords = np.asarray(coords, dtype=np.int64)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one patch."""
        return tuple(self.patches.shape[1:])

    def __len__(self) -> int:
        return len(self.patches)

    def read(self, indices: Indices) -> Tensor:
        """Only these patches, in this order."""
        return self.patches[as_index(indices, len(self), self.name).to(self.patches.device)]


def in_memory(source: PatchSource) -> MemoryPatches:
    """All patches of a source, read; of features not where they are, which a file may not say."""
    if isinstance(source, MemoryPatches):
        return source
    patches = source.read(torch.arange(len(source)))
    coords = source.coords if patches.dim() == 4 else None
    return MemoryPatches(patches, coords=coords, extent=source.extent, name=source.name)


def as_index(indices: Indices, count: int, name: str) -> Tensor:
    """``indices`` as an int64 tensor on the CPU; one that no patch has is an error."""
    index = torch.as_tensor(indices, dtype=torch.int64).cpu()
    if len(index) and (int(index.min()) < 0 or int(index.max()) >= count):
        wrong = next(int(i) for i in index if not 0 <= i < count)
        raise PatchError(f"{name}: there is no patch {wrong}, only 0 to {count - 1}")
    return index
