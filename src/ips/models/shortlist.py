"""Keep the embeddings of the most likely patches, so that selected ones are not embedded again.

Letters: n patches, k requested patches, D embedding size, S score channels.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ips import selection
from ips.nn.embedding import joined, micro_batch
from ips.patches import PatchSource

Embed = Callable[[Tensor], Tensor]


class Shortlist:
    """Keep the embeddings of the best patches so far, while an image is scored.

    Which M patches are selected is known only at the end of a pass, and keeping all N embeddings
    until then is what the method avoids. So this list keeps a multiple of M. A selected patch that
    it does not contain is embedded again, which gives the same result.

    Args:
        size: number of patches to keep at least.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._rows: tuple[Tensor, ...] | None = None  # indices, logits, embeddings

    def add(self, indices: Tensor, logits: Tensor, x: Tensor) -> None:
        """Offer patches ``(n,)`` with their logits ``(n, S)`` and embeddings ``(n, D)``."""
        rows: tuple[Tensor, ...] = (indices, logits, x)
        if self._rows is not None:
            rows = tuple(torch.cat(pair) for pair in zip(self._rows, rows, strict=True))
        if len(rows[0]) > 2 * self._size:
            best = selection.exact(rows[1], keep=self._size).indices
            rows = tuple(column[best] for column in rows)
        self._rows = rows

    def find(self, indices: Tensor, source: PatchSource, embed: Embed) -> Tensor:
        """Return the embeddings ``(k, D)`` of patches; read and embed those not in the list."""
        if self._rows is None:
            return _embed(indices, source, embed)
        stored, order = self._rows[0].sort()
        at = torch.searchsorted(stored, indices).clamp(max=len(stored) - 1)
        x = self._rows[2][order[at]]  # (k, D)
        missing = stored[at] != indices
        if missing.any():
            x[missing] = _embed(indices[missing], source, embed)
        return x


def _embed(indices: Tensor, source: PatchSource, embed: Embed) -> Tensor:
    # In micro-batches, because these can be all patches of the image.
    parts = indices.split(micro_batch(source.shape, indices.device))
    return joined([embed(source.read(part.cpu()).to(indices.device)) for part in parts])
