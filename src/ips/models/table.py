"""The table of logits that a selection pass fills.

Letters: N patches of an image, n of a block, S score channels.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


class ScoreTable:
    """Logits ``(N, S)`` of an image's patches, filled block by block from the first patch on.

    A subclass may keep them in a file, and so go on with a pass that was interrupted.

    Attributes:
        logits: ``(N, S)``, of which the first ``done`` rows are filled; -inf for a patch that was
            passed over.
        done: how many patches have been looked at.
        progress: is told ``done`` after every block.
    """

    def __init__(
        self, logits: Tensor, *, done: int = 0, progress: Callable[[int], None] | None = None
    ) -> None:
        self.logits, self.done, self.progress = logits, done, progress

    def add(self, logits: Tensor) -> None:
        """Fill in the next ``(n, S)``."""
        end = self.done + len(logits)
        self.logits[self.done : end] = logits.to(self.logits)
        self.done = end
        if self.progress is not None:
            self.progress(end)

    def choosable(self) -> tuple[Tensor, Tensor]:
        """The logits, and ``(N,)``: True where a patch was not passed over.

        Where all were passed over there is nothing to tell them apart: any will do.
        """
        if not self.logits.shape[1]:  # nothing was scored: the selection is at random
            return self.logits, self.logits.new_ones(len(self.logits), dtype=torch.bool)
        shown = self.logits[:, 0] != -torch.inf
        if not shown.any():
            return torch.zeros_like(self.logits), torch.ones_like(shown)
        return self.logits, shown


def empty_table(patches: int, channels: int, *, device: torch.device) -> ScoreTable:
    """A table in memory with nothing scored yet."""
    return ScoreTable(torch.empty(patches, channels, device=device))
