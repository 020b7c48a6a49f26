"""The table of logits that a selection pass fills.

Letters: N patches of an image, n of a block, S score channels.
"""

from __future__ import annotations

import torch
from torch import Tensor


class ScoreTable:
    """Logits ``(N, S)`` of an image's patches, filled block by block from the first patch on.

    A subclass may keep them in a file, and so go on with a pass that was interrupted.

    Attributes:
        logits: ``(N, S)``, of which the first ``done`` rows are filled; -inf for a patch that was
            passed over.
        done: how many patches have been looked at.
    """

    def __init__(self, logits: Tensor, *, done: int = 0) -> None:
        self.logits, self.done = logits, done

    def add(self, logits: Tensor) -> None:
        """Fill in the next ``(n, S)``."""
        end = self.done + len(logits)
        self.logits[self.done : end] = logits.to(self.logits)
        self.done = end

    def mask(self) -> Tensor:
        """``(N,)``, True where there is something to choose; everything if there is nothing."""
        scored = (self.logits > -torch.inf).all(dim=1)
        return scored if scored.any() else torch.ones_like(scored)


def empty_table(patches: int, channels: int, *, device: torch.device) -> ScoreTable:
    """A table in memory with nothing scored yet."""
    return ScoreTable(torch.empty(patches, channels, device=device))
