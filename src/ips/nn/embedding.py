"""The selection pass through the encoder: many patches, no gradients, little memory.

Letters: n patches, D embedding size.

What a patch's embedding is does not depend on the patches beside it, so how many go through the
encoder at a time is a matter of cache and memory alone, and equal patches need to go once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from ips.nn.folding import FoldedEncoder, has_hooks
from ips.nn.repeats import distinct

Prepare = Callable[[Tensor], Tensor]

# Activations of about this many pixels stay in a CPU's cache; a GPU wants far more at a time.
_PIXELS = {"cpu": 320_000, "cuda": 10_000_000}
_ROWS = {"cpu": 1_024, "cuda": 16_384}
_PROBE = 256  # patches looked at before deciding whether equal ones are worth looking for
_REMEMBERED = 8  # repeated patches whose embedding is carried from one block to the next


class SelectionEncoder:
    """An encoder as selection uses it: folded where it can be, in micro-batches of few shapes.

    Args:
        prepare: from stored patches (uint8 pixels, fp16 features) to what the encoder takes.
        compile: compile the encoder with ``torch.compile``; pays on a GPU, for long runs.
    """

    def __init__(self, prepare: Prepare, *, compile: bool = False) -> None:
        self._prepare, self._compile = prepare, compile
        self._state: list[int] = []  # of which modules the encoder was made when it was adopted
        self._folded: FoldedEncoder | None = None
        self._run: Callable[[Tensor], Tensor] | None = None
        self._unproven: nn.Module | None = None  # the encoder, until its copy has been compared

    def begin(self, encoder: nn.Module) -> EmbeddingPass:
        """A pass with the encoder and its weights as they are now; call it in evaluation mode."""
        parts = list(encoder.modules())
        state = [has_hooks(encoder), *(id(part) for part in parts)]
        if state != self._state:
            self._adopt(encoder)
            self._state = state
        if self._folded is not None:
            self._folded.refresh()
        return EmbeddingPass(self._encode)

    def _adopt(self, encoder: nn.Module) -> None:
        try:
            with torch.inference_mode(False):  # or the copy could never be brought up to date
                self._folded = FoldedEncoder(encoder, compile=self._compile)
            self._run, self._unproven = self._folded, encoder
        except ValueError:  # not a network of convolutions and BatchNorms: as it is, then
            self._keep(encoder)

    def _keep(self, encoder: nn.Module) -> None:
        self._folded, self._unproven = None, None
        self._run = torch.compile(encoder) if self._compile else encoder

    def _prove(self, encoder: nn.Module, x: Tensor) -> None:
        """Leave the copy where it gives another answer: not all that can be traced is traced right.

        Rounding is a thousandth at most, even in half precision a few hundredths.
        """
        self._unproven = None
        expected = encoder(x)
        try:
            assert self._folded is not None
            off = (self._folded(x) - expected).norm()
        except Exception:  # a copy may fail in any way where the encoder does not
            self._keep(encoder)
        else:
            if not off <= 0.05 * expected.norm():
                self._keep(encoder)

    def _encode(self, patches: Tensor) -> Tensor:
        """Embed ``(n, ...)`` patches, a micro-batch at a time, as ``(n, D)``."""
        assert self._run is not None
        size = micro_batch(patches.shape[1:], patches.device)
        step = max(size // 8, 1)
        done = []
        for part in patches.split(size):
            # One of eight shapes: a library that prepares a kernel per shape would otherwise
            # fill memory with them. The last part is filled up with its own first patch.
            lacking = -len(part) % step
            filler = [part[:1].expand(lacking, *part.shape[1:])] if lacking else []
            x = self._prepare(joined([part, *filler]))
            if self._unproven is not None:
                self._prove(self._unproven, x)
            done.append(self._run(x)[: len(part)])
        return joined(done)


class EmbeddingPass:
    """Embeds block after block of one image or batch, equal patches once where that pays."""

    def __init__(self, encode: Callable[[Tensor], Tensor]) -> None:
        self._encode = encode
        self._seen = self._embedded = 0
        self._known: tuple[Tensor, Tensor] | None = None  # patches, embeddings

    def __call__(self, patches: Tensor) -> Tensor:
        """``(n, ...)`` to ``(n, D)``."""
        worth = self._seen < _PROBE or self._embedded < 0.9 * self._seen
        if patches.dtype != torch.uint8 or not worth:
            return self._encode(patches)
        known = 0
        if self._known is not None:
            known = len(self._known[0])
            patches = torch.cat([self._known[0], patches])
        found = distinct(patches)
        fresh = found.first >= known  # the known ones come first, so each is its own first
        if self._known is None:
            x = self._encode(patches.index_select(0, found.first))  # (u, D)
        else:
            x = self._known[1].new_empty(len(fresh), self._known[1].shape[1])
            x[~fresh] = self._known[1][found.first[~fresh]]
            if fresh.any():
                x[fresh] = self._encode(patches.index_select(0, found.first[fresh]))
        self._seen += len(patches) - known
        self._embedded += int(fresh.sum())
        counts = torch.bincount(found.group)
        often = counts.topk(min(_REMEMBERED, len(counts))).indices
        often = often[counts[often] > 1]
        if len(often):
            self._known = patches[found.first[often]], x[often]
        return x.index_select(0, found.group[known:])


def joined(parts: Sequence[Tensor]) -> Tensor:
    """One after another; a single part is handed on without a copy."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def micro_batch(shape: torch.Size | tuple[int, ...], device: torch.device) -> int:
    """How many patches of this shape go through the encoder at a time: a power of two.

    Chosen from the shape and the kind of device alone, so that a run is reproducible.
    """
    if len(shape) < 3:
        return _ROWS.get(device.type, _ROWS["cuda"])
    fit = _PIXELS.get(device.type, _PIXELS["cuda"]) // (shape[-1] * shape[-2])
    return 1 << max(fit.bit_length() - 1, 3)
