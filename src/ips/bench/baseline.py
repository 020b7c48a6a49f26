"""The paper as written, to measure against: plain PyTorch, nothing done to make it fast.

Letters: B images, N patches of an image, M kept, I per step, C channels, D embedding size,
T tokens, H heads, D_k = D / H.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ips.errors import ConfigError
from ips.models import IPSNet
from ips.nn import CrossAttentionTransformer, evaluating, sinusoidal_position
from ips.patches import PatchSource


@dataclass(frozen=True)
class Kept:
    """What the select step hands to the forward step.

    Attributes:
        indices: ``(B, M)`` in the images' own numbering.
        patches: ``(B, M, ...)`` floats.
    """

    indices: Tensor
    patches: Tensor


class PaperIPS(nn.Module):
    """Algorithm 1 with the weights of ``net``, which it copies.

    All images of a batch go in parallel, B·I patches at a time, through the encoder as it is in
    training (NCHW, BatchNorm apart). At every step of Eq. 1 the keys of all M + I candidates are
    projected from their embeddings. All images have the same N.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, net: IPSNet) -> None:
        super().__init__()
        if not isinstance(net.aggregator, CrossAttentionTransformer):
            raise ConfigError(
                f"the baseline selects by cross-attention, not by {type(net.aggregator).__name__}: "
                "compare a model with the cross-attention aggregator"
            )
        encoder: nn.Module = copy.deepcopy(net.encoder)
        # IPSNet has put the channels innermost; a plain network has them outermost.
        self.encoder = encoder.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        self.aggregator = copy.deepcopy(net.aggregator)
        self.tasks, self.heads = net.tasks, copy.deepcopy(net.heads)
        self.keep, self.chunk, self.position = net.keep, net.chunk, net.position
        self.register_buffer("mean", net.mean.clone(), persistent=False)
        self.register_buffer("std", net.std.clone(), persistent=False)

    def load(self, sources: Sequence[PatchSource]) -> Tensor:
        """The batch as a data loader hands it over: ``(B, N, ...)`` floats, on the device."""
        patches = torch.stack([source.read(range(len(source))) for source in sources])
        pixels = patches.dtype == torch.uint8
        patches = patches.to(self.mean.device, self.mean.dtype)
        return patches.div_(255).sub_(self.mean).div_(self.std) if pixels else patches

    def select(self, patches: Tensor, order: Tensor) -> Kept:
        """Eq. 1 over ``patches`` ``(B, N, ...)``, looked at in ``order`` ``(B, N)``."""
        N = patches.shape[1]
        M = N if self.keep is None else min(self.keep, N)
        with evaluating(self):
            patches = _rows(patches, order)  # shuffled, as the authors do: a copy
            x = self._embed(patches[:, :M], order[:, :M])  # (B, M, D)
            at = torch.arange(M, device=order.device).expand(len(order), M)  # (B, M)
            for start in range(M, N, self.chunk):
                new = slice(start, min(start + self.chunk, N))
                x = torch.cat([x, self._embed(patches[:, new], order[:, new])], dim=1)
                place = torch.arange(N, device=order.device)[new].expand(len(order), -1)
                at = torch.cat([at, place], dim=1)  # (B, M+I)
                # The earlier of two equal scores wins, as everywhere in this library.
                best = self._scores(x).sort(dim=1, descending=True, stable=True).indices[:, :M]
                best = best.sort(dim=1).values  # (B, M)
                x, at = _rows(x, best), at.gather(1, best)
            return Kept(indices=order.gather(1, at), patches=_rows(patches, at))

    def forward(self, kept: Kept) -> dict[str, Tensor]:
        """Embed the patches kept again, aggregate and classify: logits ``(B, C)`` per task."""
        x = self._embed(kept.patches, kept.indices)  # (B, M, D)
        mask = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        tokens = self.aggregator(x, mask).tokens.unbind(dim=1)  # T x (B, D)
        answers = zip(self.tasks, self.heads, tokens, strict=True)
        return {task: head(z) for task, head, z in answers}

    def _embed(self, patches: Tensor, indices: Tensor) -> Tensor:
        """``(B, I, ...)`` to ``(B, I, D)``, in one go, with the encoding of the places added."""
        x: Tensor = self.encoder(patches.flatten(0, 1)).unflatten(0, indices.shape)  # (B, I, D)
        return x + sinusoidal_position(indices, x.shape[-1]).to(x.dtype) if self.position else x

    def _scores(self, x: Tensor) -> Tensor:
        """Attention among the candidates ``x`` ``(B, M+I, D)``, averaged: ``(B, M+I)``."""
        attention, q = self.aggregator.attention, self.aggregator.q
        Q = attention.query(q).unflatten(-1, (attention.heads, -1)).transpose(0, 1)  # (H, T, D_k)
        K = attention.key(x).unflatten(-1, (attention.heads, -1)).permute(0, 2, 3, 1)
        a = (Q @ K * Q.shape[-1] ** -0.5).softmax(dim=-1)  # (B, H, T, M+I)
        scores: Tensor = a.mean(dim=1).mean(dim=1)  # over heads, then over tokens: (B, M+I)
        return scores


def _rows(table: Tensor, index: Tensor) -> Tensor:
    """Rows ``index`` ``(B, k)`` of each image's ``table`` ``(B, n, ...)``."""
    return table[torch.arange(len(index), device=index.device).unsqueeze(1), index]
