"""The paper's algorithm in plain PyTorch, without optimisation: the baseline of the benchmarks.

Letters: B images, N patches of an image, M kept, I per step, C channels, D embedding size,
T tokens, H heads, D_k = D / H.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ips import selection
from ips.errors import ConfigError
from ips.models import IPSNet
from ips.nn import CrossAttentionTransformer, evaluating, sinusoidal_position
from ips.patches import PatchSource


class Kept(NamedTuple):
    """Selected patches: their indices ``(B, M)`` and floats ``(B, M, ...)``."""

    indices: Tensor
    patches: Tensor


class PaperIPS(nn.Module):
    """Algorithm 1 of the paper with a copy of the weights of ``net``.

    All images of a batch are processed in parallel, B·I patches at a time, by the encoder as it is
    in training (NCHW, BatchNorm not folded). Every step of Eq. 1 projects the keys of all M + I
    candidates from their embeddings. All images must have the same N.
    """

    def __init__(self, net: IPSNet) -> None:
        super().__init__()
        if not isinstance(net.aggregator, CrossAttentionTransformer):
            raise ConfigError(
                f"the baseline selects by cross-attention, not by {type(net.aggregator).__name__}: "
                "compare a model with the cross-attention aggregator"
            )
        encoder: nn.Module = copy.deepcopy(net.encoder)
        # IPSNet stores its weights in channels-last format; a plain network does not.
        self.encoder = encoder.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        self.aggregator = copy.deepcopy(net.aggregator)
        self.tasks, self.heads = net.tasks, copy.deepcopy(net.heads)
        self.keep, self.chunk, self.position = net.keep, net.chunk, net.position
        self.normalise = copy.deepcopy(net.normalise)

    def load(self, sources: Sequence[PatchSource]) -> Tensor:
        """Load the batch as a data loader does: ``(B, N, ...)`` floats on the device."""
        patches = torch.stack([source.read(range(len(source))) for source in sources])
        pixels = patches.dtype == torch.uint8
        mean, std = self.normalise.mean, self.normalise.std
        patches = patches.to(mean.device, mean.dtype)
        return patches.div_(255).sub_(mean).div_(std) if pixels else patches

    def select(self, patches: Tensor, *, seed: int) -> Kept:
        """Eq. 1 over ``patches`` ``(B, N, ...)``, visited in the order that `IPSNet` uses."""
        B, N = patches.shape[:2]
        M = N if self.keep is None else min(self.keep, N)
        present = torch.ones(B, N, dtype=torch.bool)
        order = selection.shuffled(present, seed=seed).to(patches.device)  # (B, N)
        numbers = torch.arange(N, device=patches.device).expand(B, N)
        with evaluating(self):
            patches = _rows(patches, order)  # shuffled, as in the authors' code: a copy
            x = self._embed(patches[:, :M], order[:, :M])  # (B, M, D)
            at = numbers[:, :M]  # (B, M)
            for start in range(M, N, self.chunk):
                new = slice(start, min(start + self.chunk, N))
                x = torch.cat([x, self._embed(patches[:, new], order[:, new])], dim=1)
                at = torch.cat([at, numbers[:, new]], dim=1)  # (B, M+I)
                # Of two equal scores the earlier wins, as in `ips.selection`.
                best = self._scores(x).sort(dim=1, descending=True, stable=True).indices[:, :M]
                best = best.sort(dim=1).values  # (B, M)
                x, at = _rows(x, best), at.gather(1, best)
            return Kept(indices=order.gather(1, at), patches=_rows(patches, at))

    def forward(self, kept: Kept) -> dict[str, Tensor]:
        """Embed the kept patches again, aggregate and classify: logits ``(B, C)`` per task."""
        x = self._embed(kept.patches, kept.indices)  # (B, M, D)
        mask = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        tokens = self.aggregator(x, mask).tokens.unbind(dim=1)  # T x (B, D)
        rows = zip(self.tasks, self.heads, tokens, strict=True)
        return {task: head(z) for task, head, z in rows}

    def _embed(self, patches: Tensor, indices: Tensor) -> Tensor:
        """``(B, I, ...)`` to ``(B, I, D)``, in one batch, with the position encoding added."""
        x: Tensor = self.encoder(patches.flatten(0, 1)).unflatten(0, indices.shape)  # (B, I, D)
        return x + sinusoidal_position(indices, x.shape[-1]).to(x.dtype) if self.position else x

    def _scores(self, x: Tensor) -> Tensor:
        """Mean attention among the candidates ``x`` ``(B, M+I, D)``: ``(B, M+I)``."""
        attention, q = self.aggregator.attention, self.aggregator.q
        Q = attention.query(q).unflatten(-1, (attention.heads, -1)).transpose(0, 1)  # (H, T, D_k)
        K = attention.key(x).unflatten(-1, (attention.heads, -1)).permute(0, 2, 3, 1)
        a = (Q @ K * Q.shape[-1] ** -0.5).softmax(dim=-1)  # (B, H, T, M+I)
        scores: Tensor = a.mean(dim=1).mean(dim=1)  # over heads, then over tokens: (B, M+I)
        return scores


def _rows(table: Tensor, index: Tensor) -> Tensor:
    """Rows ``index`` ``(B, k)`` of each image's ``table`` ``(B, n, ...)``."""
    return table[torch.arange(len(index), device=index.device).unsqueeze(1), index]
