"""Embed many patches without gradients and with little memory, for selection.

Letters: n patches, u distinct ones, P bytes of a patch, D embedding size.

The embedding of a patch does not depend on the other patches. So the number of patches per
micro-batch only affects speed and memory, and equal patches need to be embedded only once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ips.nn.encoders import Enlarge
from ips.nn.folding import FoldedEncoder, has_hooks

# Activations of about this many pixels fit into the cache of a CPU; a GPU needs far more at a time.
_PIXELS = {"cpu": 320_000, "cuda": 10_000_000}
_ROWS = {"cpu": 1_024, "cuda": 16_384}
PROBE = 256  # patches to embed before deciding whether to search for equal ones
_REMEMBERED = 8  # repeated patches whose embeddings are kept for the next block


class SelectionEncoder:
    """An encoder for the select step: with folded BatchNorms if possible, in micro-batches.

    Args:
        prepare: from stored patches (uint8 pixels, fp16 features) to the input of the encoder.
        compile: compile the encoder with ``torch.compile``; worthwhile for long runs on a GPU.
    """

    def __init__(self, prepare: Callable[[Tensor], Tensor], *, compile: bool = False) -> None:
        self._prepare, self._compile = prepare, compile
        self._forget()

    def _forget(self) -> None:
        self._modules: list[int] = []  # identities of the encoder's modules when it was prepared
        self._folded: FoldedEncoder | None = None
        self._run: Callable[[Tensor], Tensor] | None = None
        self._unchecked: nn.Module | None = None  # the encoder, until its copy has been compared
        self._enlarge = 1.0

    def __getstate__(self) -> dict[str, Any]:
        """A pickled encoder prepares its copy again: a traced network cannot always be pickled."""
        return {"_prepare": self._prepare, "_compile": self._compile}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def begin(self, encoder: nn.Module, *, size: int | None = None) -> EmbeddingPass:
        """Start a pass with the current weights of the encoder, which is in evaluation mode.

        With ``size``, that many patches are embedded at a time, and equal ones each for itself. By
        default it is a number that suits the device.
        """
        modules = [has_hooks(encoder), *(id(part) for part in encoder.modules())]
        if modules != self._modules:
            self._fold(encoder)
            self._modules = modules
            self._enlarge = next((m.factor for m in encoder.modules() if isinstance(m, Enlarge)), 1)
        if self._folded is not None:
            self._folded.refresh()
        return EmbeddingPass(partial(self._encode, size=size), size=size)

    def _fold(self, encoder: nn.Module) -> None:
        try:
            with torch.inference_mode(False):  # inference tensors could never be updated
                self._folded = FoldedEncoder(encoder, compile=self._compile)
            self._run, self._unchecked = self._folded, encoder
        except ValueError:  # there is nothing to fold
            self._use_as_is(encoder)

    def _use_as_is(self, encoder: nn.Module) -> None:
        self._folded, self._unchecked = None, None
        self._run = torch.compile(encoder) if self._compile else encoder

    def _check_copy(self, encoder: nn.Module, x: Tensor) -> None:
        """Drop the folded copy if its output differs: tracing does not work for all networks.

        Rounding changes the output by a thousandth, in half precision by a few hundredths.
        """
        self._unchecked = None
        expected = encoder(x)
        try:
            assert self._folded is not None
            difference = (self._folded(x) - expected).norm()
        except Exception:  # the copy may fail in any way
            self._use_as_is(encoder)
        else:
            if not difference <= 0.05 * expected.norm():
                self._use_as_is(encoder)

    def _encode(self, patches: Tensor, size: int | None) -> Tensor:
        """Embed ``(n, ...)`` patches in micro-batches as ``(n, D)``."""
        assert self._run is not None
        size = size or micro_batch(patches.shape[1:], patches.device, enlarge=self._enlarge)
        step = max(size // 8, 1)
        done = []
        for part in patches.split(size):
            # Pad the last part to one of eight sizes: libraries that prepare a kernel per shape
            # would otherwise fill the memory with kernels.
            lacking = -len(part) % step
            padding = [part[:1].expand(lacking, *part.shape[1:])] if lacking else []
            x = self._prepare(joined([part, *padding]))
            if self._unchecked is not None:
                self._check_copy(self._unchecked, x)
            done.append(self._run(x)[: len(part)])
        return joined(done)


class EmbeddingPass:
    """Embeds block after block of an image or batch; equal patches once, if there are many.

    Attributes:
        size: number of patches to embed at a time, if it was given to `SelectionEncoder.begin`.
    """

    def __init__(self, encode: Callable[[Tensor], Tensor], *, size: int | None) -> None:
        self._encode, self.size = encode, size
        self._seen = self._embedded = 0
        self._known: tuple[Tensor, Tensor] | None = None  # patches, embeddings

    def __call__(self, patches: Tensor) -> Tensor:
        """Embed ``(n, ...)`` patches as ``(n, D)``."""
        worthwhile = self._seen < PROBE or self._embedded < 0.9 * self._seen
        if self.size is not None or patches.dtype != torch.uint8 or not worthwhile:
            return self._encode(patches)
        known = 0 if self._known is None else len(self._known[0])
        if self._known is not None:
            patches = torch.cat([self._known[0], patches])
        first, group = distinct(patches)
        new = first >= known  # known patches are distinct and come first
        if self._known is None:
            x = self._encode(patches.index_select(0, first))  # (u, D)
        else:
            x = self._known[1].new_empty(len(new), self._known[1].shape[1])
            x[~new] = self._known[1][first[~new]]
            if new.any():
                x[new] = self._encode(patches.index_select(0, first[new]))
        self._seen += len(patches) - known
        self._embedded += int(new.sum())
        counts = torch.bincount(group)
        frequent = counts.topk(min(_REMEMBERED, len(counts))).indices
        frequent = frequent[counts[frequent] > 1]
        if len(frequent):
            self._known = patches[first[frequent]], x[frequent]
        return x.index_select(0, group[known:])


def joined(parts: Sequence[Tensor]) -> Tensor:
    """Concatenate tensors, without a copy if there is only one."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def micro_batch(
    shape: torch.Size | tuple[int, ...], device: torch.device, *, enlarge: float = 1.0
) -> int:
    """Number of patches of this shape to embed at a time, a power of two.

    It depends on the shape that the encoder sees and the type of the device alone, so that runs are
    reproducible.
    """
    if len(shape) < 3:
        return _ROWS.get(device.type, _ROWS["cuda"])
    pixels = enlarge**2 * shape[-1] * shape[-2]
    fit = int(_PIXELS.get(device.type, _PIXELS["cuda"]) / pixels)
    return 1 << max(fit.bit_length() - 1, 3)


def blank(patches: Tensor) -> Tensor:
    """Return ``(n,)``, True for patches ``(n, C, h, w)`` of a single colour."""
    if patches.dim() != 4:
        return torch.zeros(len(patches), dtype=torch.bool, device=patches.device)
    colours = patches.flatten(2)  # (n, C, h·w)
    return (colours.amin(dim=2) == colours.amax(dim=2)).all(dim=1)


def distinct(patches: Tensor) -> tuple[Tensor, Tensor]:
    """Group equal uint8 patches ``(n, ...)`` by a hash, and confirm it by comparison.

    Returns:
        ``first`` ``(u,)``, the index of the first occurrence of each of the u distinct patches, and
        ``group`` ``(n,)``, which of them each patch equals: ``patches[first][group] == patches``.
    """
    rows = patches.flatten(1)  # (n, P)
    words = F.pad(rows, (0, -rows.shape[1] % 8)).contiguous().view(torch.int64)  # (n, P / 8)
    _, group = torch.unique(_hashes(words), return_inverse=True)
    places = torch.arange(len(patches), device=patches.device)
    count = int(group.max()) + 1
    first = places.new_full((count,), len(patches)).scatter_reduce(0, group, places, "amin")
    if not torch.equal(words.index_select(0, first[group]), words):
        return places, places  # a hash collision
    return first, group


def _hashes(words: Tensor) -> Tensor:
    """Hash each row of 8-byte words to 64 bits, with a random odd weight for every word."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randint(-(2**62), 2**62, words.shape[1:], generator=generator) * 2 + 1
    # Mixed, or the high byte of a word would only affect the high byte of the hash.
    mixed = words ^ (words >> 29)
    return mixed.mul_(weights.to(words.device)).sum(dim=1)


@contextmanager
def evaluating(*modules: nn.Module) -> Iterator[None]:
    """Run in evaluation and no-gradient mode, then restore the mode of every sub-module.

    ``module.train(mode)`` would set one mode for all sub-modules, and so unfreeze a BatchNorm that
    had been set to evaluation mode. The modes are also restored after an exception.
    """
    flags = [(part, part.training) for module in modules for part in module.modules()]
    try:
        for part, _ in flags:
            part.training = False
        with torch.no_grad():
            yield
    finally:
        for part, flag in flags:
            part.training = flag
        # Weights that autocast has converted here have no gradients, so drop them.
        torch.clear_autocast_cache()
