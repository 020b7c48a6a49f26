"""Aggregators: they score each patch by itself, and combine the patches kept.

Letters: B images, M patches, D embedding size, T tokens (one per task), H heads, D_k = D / H size
of a head, D_h hidden units of gated attention, S score channels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from ips.devices import double_device
from ips.errors import ConfigError

Start = Literal["xavier", "authors"]


@dataclass(frozen=True)
class Aggregated:
    """One representation of the image per task, and the attention that it is based on.

    Attributes:
        tokens: ``(B, T, D)``.
        attention: ``(B, T, H, M)``, 0 for masked patches; sums to 1 over the others.
    """

    tokens: Tensor
    attention: Tensor


class Aggregator(Protocol):
    """Interface of an ``nn.Module`` that aggregates patches in ``IPSNet`` and scores them.

    Attributes:
        channels: S.
        description: name for reports.
    """

    channels: int
    description: str

    def scorer(self) -> Callable[[Tensor], Tensor]:
        """Return a function from embeddings ``(n, D)`` to logits ``(n, S)``, for one pass.

        Each row of logits depends on its own embedding alone. Everything that can be computed once
        per pass is computed here.
        """
        ...

    def __call__(self, x: Tensor, mask: Tensor) -> Aggregated:
        """Combine embeddings ``(B, M, D)``; ``mask`` ``(B, M)`` is False for padding."""
        ...


class CrossAttention(nn.Module):
    """Multi-head cross-attention, MCA of Appendix B: projections without bias.

    Args:
        dim: D.
        heads: H, 8 in the paper; D_k = D_v = D / H.
        attention_dropout: dropout of the attention after the softmax.
        start: initial projections: ``xavier``, or ``authors`` for those of the authors' code.
    """

    def __init__(
        self,
        dim: int,
        *,
        heads: int = 8,
        attention_dropout: float = 0.1,
        start: Start = "xavier",
    ) -> None:
        super().__init__()
        if dim % heads:
            nearest = min(
                (h for h in range(1, dim + 1) if not dim % h), key=lambda h: abs(h - heads)
            )
            raise ConfigError(
                f"aggregate.heads={heads} does not divide the embedding size {dim}: "
                f"use {nearest} heads"
            )
        self.heads = heads
        self.query = nn.Linear(dim, dim, bias=False)  # W^q
        self.key = nn.Linear(dim, dim, bias=False)  # W^k
        self.value = nn.Linear(dim, dim, bias=False)  # W^v
        self.out = nn.Linear(dim, dim, bias=False)  # W^o
        self.attention_dropout = nn.Dropout(attention_dropout)
        # The query is added to the attended patches. The authors' code leaves the projections at
        # PyTorch's default, uniform in ±sqrt(1 / D). The patches' share of that sum is then three
        # times smaller than with Xavier's ±sqrt(3 / D), and training takes off much later.
        if start == "xavier":
            for projection in (self.query, self.key, self.value, self.out):
                nn.init.xavier_uniform_(projection.weight)

    def fold(self, q: Tensor) -> Tensor:
        """Fold the query and key projections into one matrix ``A`` with ``logits = x @ A``.

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
        x = x.masked_fill(~mask.unsqueeze(-1), 0.0)  # because 0 times NaN is NaN
        Q = self.query(q).view(len(q), self.heads, -1).transpose(0, 1)  # (H, T, D_k)
        K = self.key(x).view(B, M, self.heads, -1).permute(0, 2, 3, 1)  # (B, H, D_k, M)
        V = self.value(x).view(B, M, self.heads, -1).transpose(1, 2)  # (B, H, M, D_v)
        logits = Q @ K * Q.shape[-1] ** -0.5  # (B, H, T, M)
        a = logits.masked_fill(~mask[:, None, None], -torch.inf).softmax(dim=-1)
        z = self.attention_dropout(a) @ V  # (B, H, T, D_v)
        z = z.transpose(1, 2).reshape(B, len(q), D)  # (B, T, D)
        return Aggregated(tokens=self.out(z), attention=a.transpose(1, 2))


class CrossAttentionTransformer(nn.Module):
    """Cross-attention from learned query tokens, then an MLP (Appendix B, equations 6 to 8).

    Args:
        dim: D.
        tokens: T, one query token per task.
        heads: H, 8 in the paper; S = T·H.
        inner: hidden size of the MLP, 4·D in the paper.
        dropout: dropout of the outputs of the attention and of the MLP, 0.1 in the paper.
        attention_dropout: dropout of the attention, 0.1 in the paper.
        start: initial projections, see `CrossAttention`.
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
        start: Start = "xavier",
    ) -> None:
        super().__init__()
        self.channels, self.description = tokens * heads, f"cross-attention, {heads} heads"
        self.attention = CrossAttention(
            dim, heads=heads, attention_dropout=attention_dropout, start=start
        )
        self.q = nn.Parameter(torch.empty(tokens, dim))
        bound = (dim // heads) ** -0.5  # sqrt(1 / D_k), as in the authors' code
        nn.init.uniform_(self.q, -bound, bound)
        inner = inner or 4 * dim
        self.mlp = nn.Sequential(
            nn.Linear(dim, inner), nn.ReLU(), nn.Linear(inner, dim), nn.Dropout(dropout)
        )
        self.dropout = nn.Dropout(dropout)
        self.norm_attention = nn.LayerNorm(dim, eps=1e-6)
        self.norm_mlp = nn.LayerNorm(dim, eps=1e-6)

    def scorer(self) -> Callable[[Tensor], Tensor]:
        """Return ``x @ A``, with the queries folded into the key projection once."""
        A = self.attention.fold(self.q)  # (D, S)
        return lambda x: x @ A

    def forward(self, x: Tensor, mask: Tensor) -> Aggregated:
        """Combine ``x`` ``(B, M, D)`` into T representations."""
        attended = self.attention(self.q, x, mask)
        z = self.norm_attention(self.dropout(attended.tokens) + self.q)  # (B, T, D)
        z = self.norm_mlp(self.mlp(z) + z)
        return Aggregated(tokens=z, attention=attended.attention)


class GatedAttention(nn.Module):
    """Gated attention of DeepMIL (Ilse et al. 2018): f(x) = w (tanh(x U) * sigmoid(x V)) per task.

    A token is the attention-weighted sum of the patches.

    Args:
        dim: D.
        tokens: T, one attention layer per task (Sect. 4.3); S = T.
        hidden: D_h, 128 for DeepMIL and 1,024 for DeepMIL+ in the paper.
    """

    description = "gated attention"

    def __init__(self, dim: int, *, tokens: int, hidden: int = 128) -> None:
        super().__init__()
        self.channels = tokens
        self.U = nn.Linear(dim, tokens * hidden)
        self.V = nn.Linear(dim, tokens * hidden)
        self.w = nn.Parameter(torch.empty(tokens, hidden))
        nn.init.uniform_(self.w, -(hidden**-0.5), hidden**-0.5)  # as in nn.Linear(hidden, 1)

    def logits(self, x: Tensor) -> Tensor:
        """``(..., D)`` embeddings to ``(..., T)`` logits, each row by itself."""
        hidden = self.U(x).tanh() * self.V(x).sigmoid()  # (..., T·D_h)
        weighted: Tensor = hidden.unflatten(-1, self.w.shape) * self.w  # (..., T, D_h)
        return weighted.sum(dim=-1)  # (..., T)

    def scorer(self) -> Callable[[Tensor], Tensor]:
        """Return ``logits``: nothing can be computed in advance."""
        return self.logits

    def forward(self, x: Tensor, mask: Tensor) -> Aggregated:
        """Combine ``x`` ``(B, M, D)`` into T representations."""
        x = x.masked_fill(~mask.unsqueeze(-1), 0.0)  # because 0 times NaN is NaN
        logits = self.logits(x).transpose(1, 2)  # (B, T, M)
        a = logits.masked_fill(~mask[:, None], -torch.inf).softmax(dim=-1)
        return Aggregated(tokens=a @ x, attention=a.unsqueeze(2))  # (B, T, D), (B, T, 1, M)


def sinusoidal_position(index: Tensor, dim: int) -> Tensor:
    """Encode patch indices ``(...)`` as ``(..., dim)``: sines and cosines of growing wavelength.

    They are computed instead of looked up in a table, so the number of patches is not limited.

    >>> sinusoidal_position(torch.tensor([0, 7]), 4).shape
    torch.Size([2, 4])
    """
    # In double precision, because single precision does not separate indices above a million.
    device = double_device(index.device)
    pair = torch.arange(0, dim, 2, dtype=torch.float64, device=device)
    rates = torch.exp(pair * (-math.log(10_000.0) / dim))  # (dim / 2,)
    angles = index.to(device).unsqueeze(-1) * rates  # (..., dim / 2)
    waves = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)  # (..., dim)
    return waves[..., :dim].to(torch.float32).to(index.device)
