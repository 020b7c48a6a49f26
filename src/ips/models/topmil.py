"""TopMIL (Campanella et al. 2019, as in Sect. 3): the M patches with the highest class logit.

Letters: B images, n patches, K patches kept of an image, D embedding size, C classes, T tasks.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ips.models.outputs import Output
from ips.models.selecting import SelectingNet
from ips.selection import Selection


class TopMIL(SelectingNet):
    """Each patch is classified alone; the logits of the top M are averaged.

    A patch counts by its highest logit of all classes and tasks. That is one score channel, for
    which the iterative selection is the exact one.
    """

    channels = 1

    def scorer(self) -> Callable[[Tensor], Tensor]:
        """The highest class logit of each patch, ``(n, 1)``."""

        def score(x: Tensor) -> Tensor:
            highest = [head(x).amax(dim=-1) for head in self.heads]  # T x (n,)
            return torch.stack(highest).amax(dim=0).unsqueeze(-1)  # (n, 1)

        return score

    def aggregate(self, x: Tensor, selection: Selection) -> Output:
        """The mean of the patches' logits. For a person, attention says how sure each patch is."""
        placed, mask = self._placed(x, selection.indices), selection.mask
        there = mask.unsqueeze(-1).to(x.dtype)  # (B, K, 1)
        logits, attention = {}, []
        for task, head in zip(self.tasks, self.heads, strict=True):
            rows = head(placed)  # (B, K, C)
            logits[task] = (rows * there).sum(dim=1) / there.sum(dim=1)  # (B, C)
            highest = rows.amax(dim=-1).masked_fill(~mask, -torch.inf)
            attention.append(highest.softmax(dim=-1))  # (B, K)
        return self._output(logits, x, torch.stack(attention, dim=1).unsqueeze(2))  # (B, T, 1, K)
