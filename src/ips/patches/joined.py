"""Several images, or one image at several magnifications, as one bag.

Letters: N patches of all sources, k requested patches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ips.errors import PatchError
from ips.patches.image import MAX_PATCHES
from ips.patches.slide_finder import SlideFinder
from ips.patches.source import Coords, Indices, Part, PatchSource, as_index


class JoinedPatches(PatchSource):
    """The patches of several sources, numbered one source after the other.

    ``coords`` are in full-resolution pixels of the image that a patch belongs to. No source is read
    before one of its patches is.

    Args:
        sources: patches of the same shape.
        name: name of the bag in messages, such as that of a patient.
        magnifications: magnification of each source, if all are of one image; a scale of an image
            counts as one, such as 0.5.
    """

    def __init__(
        self,
        sources: Sequence[PatchSource],
        *,
        name: str,
        magnifications: Sequence[float] | None = None,
    ) -> None:
        if not sources:
            raise PatchError(f"{name}: has no images: add some")
        first = sources[0]
        for other in sources[1:]:
            if other.shape != first.shape:
                raise PatchError(
                    f"{name}: patches of {first.name} have the shape {first.shape} and those of "
                    f"{other.name} {other.shape}: set patches.channels to rgb or grey for images, "
                    "and take one encoder for features"
                )
        self.sources, self.name, self.shape = list(sources), name, first.shape
        self.magnifications = magnifications
        extents = {source.extent for source in sources}
        self.extent = first.extent if len(extents) == 1 else None
        self._ends = np.cumsum([len(source) for source in sources])

    @cached_property
    def coords(self) -> Coords:
        return np.concatenate([source.coords for source in self.sources])  # (N, 2)

    @property
    def numbers(self) -> npt.NDArray[np.int64]:
        """Those of every source, far apart, so that they do not change with the number before."""
        rows = [source.numbers + number * MAX_PATCHES for number, source in enumerate(self.sources)]
        return np.concatenate(rows)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of all sources."""
        parts, first, image = [], 0, 0
        for number, source in enumerate(self.sources):
            found = source.parts
            for part in found:
                start, stop = part.patches.start + first, part.patches.stop + first
                part = replace(part, patches=slice(start, stop), image=part.image + image)
                if self.magnifications is not None:
                    part = replace(part, magnification=self.magnifications[number])
                parts.append(part)
            first += len(source)
            if self.magnifications is None:
                image += 1 + max(part.image for part in found)
        return tuple(parts)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def read(self, indices: Indices) -> Tensor:
        index = as_index(indices, len(self), self.name)
        owner = np.searchsorted(self._ends, index.numpy(), side="right")  # (k,)
        out: Tensor | None = None
        for number, source in enumerate(self.sources):
            here = torch.from_numpy(owner == number)
            if not here.any():
                continue
            found = source.read(index[here] - int(self._ends[number]) + len(source))
            if len(found) == len(index):
                return found
            if out is None:
                out = found.new_empty(len(index), *self.shape)
            elif out.dtype != found.dtype:  # features of different precision
                out = out.to(torch.promote_types(out.dtype, found.dtype))
            out[here.to(out.device)] = found.to(out)
        if out is None:
            out = self.sources[0].read([])
        return out

    def by_image(self) -> list[PatchSource]:
        if self.magnifications is not None:
            return [self]
        return [image for source in self.sources for image in source.by_image()]

    def check(self) -> None:
        for source in self.sources:
            source.check()

    def each(self, change: Callable[[PatchSource], PatchSource]) -> JoinedPatches:
        """A bag of the changed sources."""
        changed = [change(source) for source in self.sources]
        return JoinedPatches(changed, name=self.name, magnifications=self.magnifications)

    def on_slide(self, slides: SlideFinder) -> PatchSource:
        return self.each(lambda source: source.on_slide(slides))

    def shifted(self, shift: tuple[float, float]) -> PatchSource:
        return self.each(lambda source: source.shifted(shift))

    def coarse(self, side: int) -> PatchSource:
        return self.each(lambda source: source.coarse(side))

    def sampled(self, count: int, *, seed: int) -> PatchSource:
        return self.each(lambda source: source.sampled(count, seed=seed))

    def close(self) -> None:
        for source in self.sources:
            source.close()
