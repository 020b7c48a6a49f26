"""Gated attention (DeepMIL, Ilse et al. 2018), the second aggregator.

Letters: B images, M patches, D embedding size, T tasks, D_h hidden units; S = T channels.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ips.nn.aggregator import Aggregated


class GatedAttention(nn.Module):
    """f(x) = w (tanh(x U) * sigmoid(x V)) per task; the token is the weighted sum of patches.

    Args:
        dim: D.
        tokens: T, one attention layer per task (Sect. 4.3).
        hidden: D_h, 128 for DeepMIL and 1,024 for DeepMIL+ in the paper.
    """

    def __init__(self, dim: int, *, tokens: int, hidden: int = 128) -> None:
        super().__init__()
        self.channels = tokens
        self.U = nn.Linear(dim, tokens * hidden)
        self.V = nn.Linear(dim, tokens * hidden)
        self.w = nn.Parameter(torch.empty(tokens, hidden))
        nn.init.uniform_(self.w, -(hidden**-0.5), hidden**-0.5)  # as nn.Linear(hidden, 1) would

    def logits(self, x: Tensor) -> Tensor:
        """``(..., D)`` embeddings to ``(..., T)`` logits, each from its own row alone."""
        hidden = self.U(x).tanh() * self.V(x).sigmoid()  # (..., T·D_h)
        weighted: Tensor = hidden.unflatten(-1, self.w.shape) * self.w  # (..., T, D_h)
        return weighted.sum(dim=-1)  # (..., T)

    def scorer(self) -> Callable[[Tensor], Tensor]:
        """``logits``: nothing here can be folded."""
        return self.logits

    def forward(self, x: Tensor, mask: Tensor) -> Aggregated:
        """Combine ``x`` ``(B, M, D)`` into T representations."""
        x = x.masked_fill(~mask.unsqueeze(-1), 0.0)  # a weight of 0 would not stop a NaN
        logits = self.logits(x).transpose(1, 2)  # (B, T, M)
        a = logits.masked_fill(~mask[:, None], -torch.inf).softmax(dim=-1)
        return Aggregated(tokens=a @ x, attention=a.unsqueeze(2))  # (B, T, D), (B, T, 1, M)
