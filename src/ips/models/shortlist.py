"""Embeddings of the likeliest patches, so that those selected are not embedded a second time.

Letters: n patches, D embedding size, S score channels.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ips import selection
from ips.nn.embedding import joined, micro_batch
from ips.patches import PatchSource


class Shortlist:
    """Keeps the embeddings of some patches of an image, the best so far, while it is scored.

    Which M patches a selection keeps is known only at the end of the pass, and holding all N
    embeddings until then is what the method is there to avoid. So a multiple of M is held, by
    their scores so far. A patch that is selected but not found here is embedded again, which
    costs time and changes nothing.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._rows: tuple[Tensor, Tensor, Tensor] | None = None  # indices, logits, embeddings

    def add(self, indices: Tensor, logits: Tensor, x: Tensor) -> None:
        """Offer ``(n,)`` patches with their logits ``(n, S)`` and embeddings ``(n, D)``."""
        new = (indices, logits, x)
        rows = new if self._rows is None else _cat(self._rows, new)
        if len(rows[0]) > 2 * self._size:
            best = selection.exact(rows[1], keep=self._size).indices
            rows = (rows[0][best], rows[1][best], rows[2][best])
        self._rows = rows

    def find(
        self, indices: Tensor, source: PatchSource, embed: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Embeddings ``(k, D)`` of these patches; those not held are read and embedded again."""
        if self._rows is None:
            return _embedded(indices, source, embed)
        held, order = self._rows[0].sort()
        at = torch.searchsorted(held, indices).clamp(max=len(held) - 1)
        x = self._rows[2][order[at]]  # (k, D)
        missing = held[at] != indices
        if missing.any():
            x[missing] = _embedded(indices[missing], source, embed)
        return x


def _embedded(indices: Tensor, source: PatchSource, embed: Callable[[Tensor], Tensor]) -> Tensor:
    """Some at a time: there may be as many as the image has."""
    parts = indices.split(micro_batch(source.shape, indices.device))
    return joined([embed(source.read(part.cpu()).to(indices.device)) for part in parts])


def _cat(
    old: tuple[Tensor, Tensor, Tensor], new: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.cat([old[0], new[0]]),
        torch.cat([old[1], new[1]]),
        torch.cat([old[2], new[2]]),
    )
