"""A bag of patches that can be read by index: all that selection needs to know about an image.

Letters: N patches of an image, C channels, D features, k requested patches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from ips.errors import PatchError
from ips.files import Closable
from ips.images import Image
from ips.patches.slide_finder import SlideFinder
from ips.patches.thumbnail import Thumbnail, paste_patches

Coords = npt.NDArray[np.int64]
Indices = Sequence[int] | npt.NDArray[np.int64] | Tensor
Box = tuple[int, int, int, int]


@dataclass(frozen=True)
class Part:
    """One image at one magnification: the geometry of some patches of a source.

    Positions and lengths are in full-resolution pixels.

    Attributes:
        name: name of the image.
        patches: indices of its patches in the source.
        area: left, top, width and height of the scanned region. Where the size of the image is
            unknown, the region ends with the last patch.
        size: width and height of the whole image; None if unknown.
        step: distance between neighbouring patches.
        extent: side of a patch; None if unknown.
        mpp: micrometres per pixel along x and y; None if unknown.
        patch_side: ``extent``, or where unknown the smallest distance between two patches.
        thumbnail: function that draws the area with a longer side of at most that many pixels.
        image: number of the image among those of the source.
        magnification: magnification that is read, if the source has several; otherwise None.
        picture: the image itself, for a closer look; None if there are only features or patches.
    """

    name: str
    patches: slice
    area: Box
    size: tuple[int, int] | None
    step: float
    extent: int | None
    mpp: tuple[float, float] | None
    patch_side: float
    thumbnail: Callable[[int], Thumbnail]
    image: int = 0
    magnification: float | None = None
    picture: Image | None = None

    @property
    def title(self) -> str:
        """Name of the image, with the magnification where there are several."""
        if self.magnification is None:
            return self.name
        return f"{self.name} at {self.magnification:g}x"


class PatchSource(Closable, ABC):
    """N patches of one bag, none of them in memory until it is read.

    A bag is an image, or several: see `JoinedPatches`.

    A source opens its file at the first ``read``, can be pickled into a worker (before or after
    that), and may be read from several threads.

    Attributes:
        name: name of the image in messages, usually the file name.
        extent: side of a patch in full-resolution pixels; None if unknown, or if parts differ.
        shape: shape of one patch: ``(C, h, w)`` pixels or ``(D,)`` features.
        patches: all patches as one tensor where they are in memory already, otherwise None.
    """

    name: str
    extent: int | None
    shape: tuple[int, ...]
    patches: Tensor | None = None

    @cached_property
    def coords(self) -> Coords:
        """``(N, 2)`` top-left corners as x, y in full-resolution pixels."""
        raise NotImplementedError(f"{type(self).__name__} has no coords: set them, or define them")

    @property
    def numbers(self) -> npt.NDArray[np.int64]:
        """``(N,)`` ascending numbers of the patches in the whole grid of the image.

        They stay the same if patches are left out, or if the grid is shifted: a patch is nearer to
        the one with its number in the grid before than to any other.
        """
        return np.arange(len(self), dtype=np.int64)

    @property
    def known_blank(self) -> npt.NDArray[np.bool_]:
        """``(N,)``, True for patches that are known to be of a single colour without a look."""
        return np.zeros(len(self), dtype=np.bool_)

    @abstractmethod
    def __len__(self) -> int: ...

    def __repr__(self) -> str:
        size = " x ".join(map(str, self.shape))
        unit = "features" if len(self.shape) == 1 else "values"
        return f"<{type(self).__name__} {self.name}: {len(self):,} patches of {size} {unit}>"

    @abstractmethod
    def read(self, indices: Indices) -> Tensor:
        """Return only these patches, in this order: ``(k, C, h, w)`` uint8 or ``(k, D)`` floats."""

    def check(self) -> None:
        """Raise if the file cannot be used, as far as reading its last patch can tell."""
        if not len(self):
            raise PatchError(f"{self.name}: has no patches: leave it out")
        self.read([len(self) - 1])

    def shifted(self, shift: tuple[float, float]) -> PatchSource:
        """The patches, moved along x and y by a fraction of the grid's stride.

        As many as before, unless a filter judges them by what they show. By default, for patches
        that cannot be cut anew, the source itself.
        """
        return self

    def sampled(self, count: int, *, seed: int) -> PatchSource:
        """At most ``count`` patches of each part, drawn at random, reproducibly."""
        return self if len(self) <= count else SampledPatches(self, count, seed=seed)

    def by_image(self) -> list[PatchSource]:
        """The patches of each image, at all its magnifications, as a source of its own."""
        return [self]

    def by_part(self) -> list[PatchSource]:
        """The patches of each part as a source of its own."""
        parts = self.parts
        return [self] if len(parts) == 1 else [PartPatches(self, part) for part in parts]

    def on_slide(self, slides: SlideFinder) -> PatchSource:
        """The same patches in front of their slide, as far as ``slides`` finds it.

        By default, for patches that have their own pixels, the source itself.
        """
        return self

    def coarse(self, side: int) -> PatchSource:
        """The same patches of pixels, at most ``side`` wide, from a lower level if there is one."""
        return self if self.shape[-1] <= side else CoarsePatches(self, side)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The images, each at one magnification, that the patches belong to.

        By default the geometry is derived from ``coords``.
        """
        if not len(self):
            raise PatchError(f"{self.name}: it has no patches, so there is nothing to show")
        side = self.extent or _smallest_step(self.coords)
        left, top = np.minimum(self.coords.min(axis=0), 0).tolist()
        right, bottom = np.ceil(self.coords.max(axis=0) + side).astype(int).tolist()
        return (
            Part(
                name=self.name,
                patches=slice(0, len(self)),
                area=(left, top, right - left, bottom - top),
                size=None,
                step=_usual_step(self.coords) or side,
                extent=self.extent,
                mpp=None,
                patch_side=side,
                thumbnail=partial(paste_patches, self, extent=side),
            ),
        )


def _smallest_step(coords: Coords) -> float:
    steps = np.concatenate([np.diff(np.unique(axis)) for axis in coords.T])
    return float(steps.min()) if len(steps) else 1.0


def _usual_step(coords: Coords) -> float:
    # Files store patches row by row or column by column, so the next one is mostly one step away.
    steps = np.diff(coords, axis=0).ravel()
    sizes, counts = np.unique(steps[steps > 0], return_counts=True)
    return float(sizes[counts.argmax()]) if len(sizes) else 0.0


class MemoryPatches(PatchSource):
    """Patches that are in memory already: the simplest source, also useful in tests.

    Args:
        patches: ``(N, C, h, w)`` uint8 pixels or ``(N, D)`` features, on any device.
        coords: ``(N, 2)`` top-left corners; by default the patches form one row.
        extent: side of a patch in full-resolution pixels; by default the side of ``patches``.
        name: name of the image in messages.
        numbers: ``(N,)`` numbers of the patches in the whole grid; by default from 0.
        known_blank: ``(N,)``, True for patches that are of a single colour; by default none.
    """

    patches: Tensor

    def __init__(
        self,
        patches: Tensor,
        *,
        coords: Coords | None = None,
        extent: int | None = None,
        name: str = "patches in memory",
        numbers: npt.NDArray[np.int64] | None = None,
        known_blank: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        if patches.dim() not in (2, 4):
            raise PatchError(
                f"{name}: expected patches (N, C, h, w) or features (N, D), "
                f"got {tuple(patches.shape)}"
            )
        self.patches = patches
        self.name = name
        self.shape = tuple(patches.shape[1:])
        pixels = patches.dim() == 4
        self.extent = patches.shape[-1] if extent is None and pixels else extent
        if coords is None:
            x = np.arange(len(patches), dtype=np.int64) * (self.extent or 1)
            coords = np.stack([x, np.zeros_like(x)], axis=1)
        if len(coords) != len(patches):
            raise PatchError(f"{name}: {len(patches)} patches but {len(coords)} coordinates")
        self.coords = np.asarray(coords, dtype=np.int64)
        self._numbers, self._known_blank = numbers, known_blank

    @property
    def numbers(self) -> npt.NDArray[np.int64]:
        return super().numbers if self._numbers is None else self._numbers

    @property
    def known_blank(self) -> npt.NDArray[np.bool_]:
        return super().known_blank if self._known_blank is None else self._known_blank

    def __len__(self) -> int:
        return len(self.patches)

    def read(self, indices: Indices) -> Tensor:
        return self.patches[as_index(indices, len(self), self.name).to(self.patches.device)]


class CoarsePatches(PatchSource):
    """The patches ``(C, h, w)`` of ``source``, averaged to ``(C, side, side)``."""

    def __init__(self, source: PatchSource, side: int) -> None:
        self.source = source
        self.name, self.extent, self.shape = (
            source.name,
            source.extent,
            (*source.shape[:1], side, side),
        )

    @cached_property
    def coords(self) -> Coords:
        return self.source.coords

    def __len__(self) -> int:
        return len(self.source)

    def read(self, indices: Indices) -> Tensor:
        x = F.adaptive_avg_pool2d(self.source.read(indices).float(), self.shape[-1])
        return x.round().to(torch.uint8)

    def close(self) -> None:
        self.source.close()


class PatchSubset(PatchSource):
    """The patches ``indices`` ``(n,)`` of ``source``, renumbered from 0.

    The indices may be in any order, but those of a part follow each other.
    """

    def __init__(self, source: PatchSource, indices: npt.NDArray[np.int64]) -> None:
        self.source = source
        self.indices = indices
        self.name, self.extent, self.shape = source.name, source.extent, source.shape

    @cached_property
    def coords(self) -> Coords:
        return self.source.coords[self.indices]

    @property
    def numbers(self) -> npt.NDArray[np.int64]:
        return self.source.numbers[self.indices]

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of the source that patches are left of."""
        found = self.source.parts
        starts = [part.patches.start for part in found]
        number = np.searchsorted(starts, self.indices, side="right") - 1  # (n,)
        if (np.diff(number) < 0).any():
            raise PatchError(f"{self.name}: the patches of its parts are mixed: sort the indices")
        ends = np.searchsorted(number, np.arange(len(found) + 1)).tolist()
        return tuple(
            replace(part, patches=slice(start, stop))
            for part, start, stop in zip(found, ends, ends[1:], strict=False)
            if start < stop
        )

    def shifted(self, shift: tuple[float, float]) -> PatchSource:
        return PatchSubset(self.source.shifted(shift), self.indices)

    def on_slide(self, slides: SlideFinder) -> PatchSource:
        shown = copy(self)
        shown.source = self.source.on_slide(slides)
        shown.extent = shown.source.extent or self.extent
        return shown

    def coarse(self, side: int) -> PatchSource:
        return PatchSubset(self.source.coarse(side), self.indices)

    def __len__(self) -> int:
        return len(self.indices)

    def read(self, indices: Indices) -> Tensor:
        index = as_index(indices, len(self), self.name)
        return self.source.read(torch.from_numpy(self.indices)[index])

    def check(self) -> None:
        self.source.check()

    def close(self) -> None:
        self.source.close()


class PartPatches(PatchSubset):
    """The patches of one part of ``source``."""

    def __init__(self, source: PatchSource, part: Part) -> None:
        super().__init__(source, np.arange(part.patches.start, part.patches.stop))
        self.name, self.extent = part.title, part.extent


class SampledPatches(PatchSubset):
    """At most ``count`` patches of a source, drawn at random."""

    def __init__(self, source: PatchSource, count: int, *, seed: int) -> None:
        rng = np.random.default_rng([seed, len(source)])
        chosen = rng.choice(len(source), min(count, len(source)), replace=False)
        super().__init__(source, np.sort(chosen).astype(np.int64))
        self.count, self.seed = count, seed

    def shifted(self, shift: tuple[float, float]) -> PatchSource:
        return SampledPatches(self.source.shifted(shift), self.count, seed=self.seed)


def sampled(source: PatchSource, count: int | None, *, seed: int) -> PatchSource:
    """Draw at most ``count`` patches of each part of a source at random, reproducibly."""
    return source if count is None else source.sampled(count, seed=seed)


def in_memory(source: PatchSource) -> MemoryPatches:
    """Read all patches of a source.

    Features lose their coordinates, which a feature file may not be able to give.
    """
    if isinstance(source, MemoryPatches):
        return source
    patches = source.read(torch.arange(len(source)))
    coords = source.coords if patches.dim() == 4 else None
    return MemoryPatches(
        patches,
        coords=coords,
        extent=source.extent,
        name=source.name,
        numbers=source.numbers,
        known_blank=source.known_blank,
    )


def as_index(indices: Indices, count: int, name: str) -> Tensor:
    """Return ``indices`` as an int64 tensor on the CPU; raise if one is not below ``count``."""
    index = torch.as_tensor(indices, dtype=torch.int64).cpu()
    if len(index) and (int(index.min()) < 0 or int(index.max()) >= count):
        wrong = next(int(i) for i in index if not 0 <= i < count)
        raise PatchError(f"{name}: there is no patch {wrong}, only 0 to {count - 1}")
    return index
