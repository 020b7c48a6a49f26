"""The patches of a batch of images, some at a time, on their way to the encoder.

Letters: B images, n patches shown out of those looked at, S score channels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ips.models.table import ScoreTable
from ips.nn.embedding import micro_batch
from ips.nn.repeats import blank
from ips.patches import PatchSource, prefetch

_TOGETHER = 16  # micro-batches of patches in memory that go together: repeats show among many


@dataclass(frozen=True)
class Block:
    """Patches of one image that follow one another.

    Attributes:
        image: which of the B.
        shown: which of those looked at are to be embedded.
        indices: ``(n,)`` their numbers in the image.
        patches: ``(n, ...)``.
    """

    image: int
    shown: Tensor
    indices: Tensor
    patches: Tensor

    def spread(self, logits: Tensor) -> Tensor:
        """``(n, S)`` of those shown to a row for each looked at, -inf for one passed over."""
        if len(logits) == len(self.shown):
            return logits
        rows = logits.new_full((len(self.shown), logits.shape[1]), -torch.inf)
        rows[self.shown] = logits
        return rows


def blocks_of(
    sources: Sequence[PatchSource],
    tables: Sequence[ScoreTable],
    device: torch.device,
    *,
    skip_blank: bool,
) -> Iterator[list[Block]]:
    """All patches that the tables do not have yet, as lists of blocks to embed together.

    Patches in memory are put together across images, for full micro-batches. What must be read
    first comes one micro-batch at a time.
    """
    together: list[Block] = []
    size = 0
    for image, (source, table) in enumerate(zip(sources, tables, strict=True)):
        for indices, patches in _reads(source, table.done, device):
            shown = torch.ones(len(indices), dtype=torch.bool, device=device)
            index = indices.to(device)
            if skip_blank:
                shown = ~blank(patches)
                index, patches = index[shown], patches[shown]
            together.append(Block(image, shown, index, patches))
            size += len(index)
            if source.patches is None or size >= _TOGETHER * micro_batch(source.shape, device):
                yield together
                together, size = [], 0
    if together:
        yield together


def _reads(
    source: PatchSource, start: int, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """The patches of a source from ``start`` on, as (indices, patches on the device)."""
    size = micro_batch(source.shape, device)
    if source.patches is not None:  # in memory already
        for first in range(start, len(source), _TOGETHER * size):
            patches = source.patches[first : first + _TOGETHER * size].to(device)
            yield torch.arange(first, first + len(patches)), patches
    else:
        yield from prefetch(source, size=size, device=device, start=start)
