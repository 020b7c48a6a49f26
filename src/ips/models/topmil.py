"""TopMIL (Campanella et al. 2019, as in Sect. 3): the M patches with the highest class logit.

Letters: B images, n patches, K patches kept of an image, D embedding size, C classes, T tasks.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ips.models.outputs import Output
from ips.models.selecting import SelectingNet
from ips.nn.heads import highest_logit, mean_of_present
from ips.selection import Selection


class TopMIL(SelectingNet):
    """Classify each patch by itself, and average the logits of the top M; needs no aggregator.

    The score of a patch is its highest logit over all classes and tasks. With this single score
    channel, iterative selection equals exact selection.
    """

    channels = 1

    def scorer(self) -> Callable[[Tensor], Tensor]:
        """Return a function from embeddings ``(n, D)`` to the highest class logits ``(n, 1)``."""
        return lambda x: highest_logit(self.heads, x)

    def aggregate(self, x: Tensor, selection: Selection) -> Output:
        """Average the patches' logits. The attention is a softmax over their highest logits."""
        placed, mask = self.add_position(x, selection.indices), selection.mask
        logits, attention = {}, []
        for task, head in zip(self.tasks, self.heads, strict=True):
            rows = head(placed)  # (B, K, C)
            logits[task] = mean_of_present(rows, mask)  # (B, C)
            highest = rows.amax(dim=-1).masked_fill(~mask, -torch.inf)
            attention.append(highest.softmax(dim=-1))  # (B, K)
        return self._output(logits, x, torch.stack(attention, dim=1).unsqueeze(2))  # (B, T, 1, K)
