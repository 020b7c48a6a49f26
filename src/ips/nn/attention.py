"""The cross-attention transformer of Appendix B, which aggregates patches and scores them.

Letters: B images, M patches, D embedding size, T query tokens (one per task), H heads,
D_k = D / H size of a head, S = T·H score channels.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ips.errors import ConfigError
from ips.nn.aggregator import Aggregated


class CrossAttention(nn.Module):
    """Multi-head cross-attention, MCA of Appendix B: projections without bias.

    Args:
        dim: D.
        heads: H, 8 in the paper; D_k = D_v = D / H.
        attention_dropout: on the attention after the softmax.
    """

    def __init__(self, dim: int, *, heads: int = 8, attention_dropout: float = 0.1) -> None:
        super().__init__()
        if dim % heads:
            raise ConfigError(
                f"aggregate.heads={heads} does not divide the embedding size {dim}: "
                f"take {_nearest_divisor(dim, heads)} heads"
            )
        self.heads = heads
        self.query = nn.Linear(dim, dim, bias=False)  # W^q
        self.key = nn.Linear(dim, dim, bias=False)  # W^k
        self.value = nn.Linear(dim, dim, bias=False)  # W^v
        self.out = nn.Linear(dim, dim, bias=False)  # W^o
        self.attention_dropout = nn.Dropout(attention_dropout)
        # The query is added to what was attended to. With PyTorch's smaller start for a linear
        # layer the patches' part of that sum is a third of this, and training starts far later.
        for projection in (self.query, self.key, self.value, self.out):
            nn.init.xavier_uniform_(projection.weight)

    def fold(self, q: Tensor) -> Tensor:
        """The query and key projections as one matrix ``A``, so that ``logits = x @ A``.

        Args:
            q: ``(T, D)`` query tokens.

        Returns:
            ``(D, T·H)``.
        """
        T, D = q.shape
        Q: Tensor = self.query(q).view(T, self.heads, -1)  # (T, H, D_k)
        W = self.key.weight.view(self.heads, -1, D)  # (H, D_k, D)
        A: Tensor = torch.einsum("thk,hkd->dth", Q, W) * Q.shape[-1] ** -0.5  # (D, T, H)
        return A.reshape(D, T * self.heads)

    def forward(self, q: Tensor, x: Tensor, mask: Tensor) -> Aggregated:
        """Attend from ``q`` ``(T, D)`` to the present patches of ``x`` ``(B, M, D)``."""
        B, M, D = x.shape
        x = x.masked_fill(~mask.unsqueeze(-1), 0.0)  # a weight of 0 would not stop a NaN
        Q = self.query(q).view(len(q), self.heads, -1).transpose(0, 1)  # (H, T, D_k)
        K = self.key(x).view(B, M, self.heads, -1).permute(0, 2, 3, 1)  # (B, H, D_k, M)
        V = self.value(x).view(B, M, self.heads, -1).transpose(1, 2)  # (B, H, M, D_v)
        logits = Q @ K * Q.shape[-1] ** -0.5  # (B, H, T, M)
        a = logits.masked_fill(~mask[:, None, None], -torch.inf).softmax(dim=-1)
        z = self.attention_dropout(a) @ V  # (B, H, T, D_v)
        z = z.transpose(1, 2).reshape(B, len(q), D)  # (B, T, D)
        return Aggregated(tokens=self.out(z), attention=a.transpose(1, 2))


class CrossAttentionTransformer(nn.Module):
    """Cross-attention from learnt query tokens, then an MLP (Appendix B, equations 6 to 8).

    Args:
        dim: D.
        tokens: T, one query token per task.
        heads: H, 8 in the paper.
        inner: hidden size of the MLP, 4·D in the paper.
        dropout: on the outputs of the attention and of the MLP, 0.1 in the paper.
        attention_dropout: on the attention, 0.1 in the paper.
    """

    def __init__(
        self,
        dim: int,
        *,
        tokens: int,
        heads: int = 8,
        inner: int | None = None,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.channels = tokens * heads
        self.attention = CrossAttention(dim, heads=heads, attention_dropout=attention_dropout)
        self.q = nn.Parameter(torch.empty(tokens, dim))
        bound = (dim // heads) ** -0.5  # sqrt(1 / D_k), as the authors start it
        nn.init.uniform_(self.q, -bound, bound)
        inner = inner or 4 * dim
        self.mlp = nn.Sequential(
            nn.Linear(dim, inner), nn.ReLU(), nn.Linear(inner, dim), nn.Dropout(dropout)
        )
        self.dropout = nn.Dropout(dropout)
        self.norm_attention = nn.LayerNorm(dim, eps=1e-6)
        self.norm_mlp = nn.LayerNorm(dim, eps=1e-6)

    def scorer(self) -> Callable[[Tensor], Tensor]:
        """``x @ A`` with the queries folded into the key projection once."""
        A = self.attention.fold(self.q)  # (D, S)
        return lambda x: x @ A

    def forward(self, x: Tensor, mask: Tensor) -> Aggregated:
        """Combine ``x`` ``(B, M, D)`` into T representations."""
        attended = self.attention(self.q, x, mask)
        z = self.norm_attention(self.dropout(attended.tokens) + self.q)  # (B, T, D)
        z = self.norm_mlp(self.mlp(z) + z)
        return Aggregated(tokens=z, attention=attended.attention)


def _nearest_divisor(dim: int, heads: int) -> int:
    return min((h for h in range(1, dim + 1) if dim % h == 0), key=lambda h: abs(h - heads))
