"""What an aggregator is: it scores each patch alone, and it combines the patches kept.

Letters: B images, M patches, D embedding size, T tokens (one per task), H heads, S = T·H channels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class Aggregated:
    """One representation of the image per task, and what it was made of.

    Attributes:
        tokens: ``(B, T, D)``.
        attention: ``(B, T, H, M)``, 0 for masked patches, sums to 1 over the others.
    """

    tokens: Tensor
    attention: Tensor


class Aggregator(Protocol):
    """An ``nn.Module`` of this shape can aggregate in ``IPSNet``, and select for it."""

    channels: int

    def scorer(self) -> Callable[[Tensor], Tensor]:
        """A function from embeddings ``(n, D)`` to logits ``(n, S)``, for one selection pass.

        Each row of logits depends on its own embedding alone. Whatever can be computed once per
        pass is computed here.
        """
        ...

    def __call__(self, x: Tensor, mask: Tensor) -> Aggregated:
        """Combine embeddings ``(B, M, D)``, of which ``mask`` ``(B, M)`` says which are there."""
        ...
