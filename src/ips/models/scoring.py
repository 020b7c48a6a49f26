"""The score table of an image, and the patches that still have to be scored.

Letters: N patches of an image, n patches of a block, k requested patches, D
embedding size, S score channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ips import selection
from ips.nn.embedding import blank, joined, micro_batch
from ips.patches import PatchSource, prefetch
from ips.patches.margins import margins

Embed = Callable[[Tensor], Tensor]

_MICRO_BATCHES = 16  # in a group of patches from memory: many, so that repeated patches meet


class ScoreTable:
    """Logits ``(N, S)`` of the patches of an image, filled in any order.

    A subclass may store them in a file, to resume an interrupted pass.

    Attributes:
        logits: ``(N, S)``; -inf for a blank patch that was skipped, undefined until scored.
        done: ``(N,)`` on the CPU, True for patches that have been scored or skipped.
        progress: callback that receives the number of patches done after every block.
        listed: ``(N,)``, True for patches to score; None for all.
        spare: ``(N,)``, True for those of them that were listed by chance.
    """

    listed: Tensor | None = None
    spare: Tensor | None = None

    def __init__(
        self,
        logits: Tensor,
        *,
        done: Tensor | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self.logits, self.progress = logits, progress
        self.done = torch.zeros(len(logits), dtype=torch.bool) if done is None else done

    def put(self, indices: Tensor, logits: Tensor) -> None:
        """Store logits ``(n, S)`` of the patches ``indices`` ``(n,)``, given on the CPU."""
        self.logits[indices.to(self.logits.device)] = logits.to(self.logits)
        self.done[indices] = True  # last, so that a stored table never claims too much
        if self.progress is not None:
            self.progress(int(self.done.sum()))

    def leave_out(self, others: Tensor, *, spare: Tensor | None = None) -> None:
        """Mark patches ``others`` ``(N,)`` as done without a score; they are not selectable."""
        self.listed, self.spare = ~others, spare
        self.skip((others & ~self.done).nonzero().squeeze(1))

    def skip(self, indices: Tensor) -> None:
        """Mark patches ``indices`` ``(n,)`` as done without a score."""
        if len(indices):
            self.put(
                indices, self.logits.new_full((len(indices), self.logits.shape[1]), -torch.inf)
            )

    def complete(self) -> None:
        """Have the patches scored that were left out, too."""
        if self.listed is not None:
            self.done[~self.listed] = False
            self.listed = self.spare = None

    def missing(self) -> Tensor:
        """Indices of the patches that are not done yet, in ascending order."""
        return (~self.done).nonzero().squeeze(1)

    def selectable(self) -> tuple[Tensor, Tensor]:
        """Return the logits, and a mask ``(N,)`` that is False for patches that were left out.

        If all patches to score were skipped, all of these are selectable with equal logits.
        """
        if not self.logits.shape[1]:  # random selection needs no scores
            return self.logits, self.logits.new_ones(len(self.logits), dtype=torch.bool)
        mask = self.logits[:, 0] != -torch.inf
        if not mask.any():
            listed = torch.ones_like(mask) if self.listed is None else self.listed.to(mask.device)
            return torch.zeros_like(self.logits), listed
        return self.logits, mask


@dataclass(frozen=True)
class Block:
    """Some patches of one image.

    Attributes:
        image: index of the image in the batch.
        indices: ``(n,)`` indices of the patches in the image, on the CPU.
        patches: ``(n, ...)`` the patches on the device.
    """

    image: int
    indices: Tensor
    patches: Tensor


def lazy_runs(
    sources: Sequence[PatchSource],
    device: torch.device,
    *,
    skip_blank: bool,
    size: int | None = None,
) -> Iterator[slice]:
    """Split a batch into runs of images to score together with lazy loading.

    A run has enough patches to fill many micro-batches across its images. It is not always the
    whole batch, because its files are open at the same time. ``skip_blank`` and ``size`` as in
    `unscored_blocks`.
    """
    start = count = 0
    for end, source in enumerate(sources, start=1):
        count += len(source) - (int(source.known_blank.sum()) if skip_blank else 0)
        full = _MICRO_BATCHES * (size or micro_batch(source.shape, device))
        if count >= full or end == len(sources):
            yield slice(start, end)
            start, count = end, 0


def unscored_blocks(
    sources: Sequence[PatchSource],
    tables: Sequence[ScoreTable],
    device: torch.device,
    *,
    skip_blank: bool,
    size: int | None = None,
) -> Iterator[list[Block]]:
    """Read the patches that are missing from the tables; yield blocks to embed together.

    Blocks are grouped across images to fill micro-batches: many of them if the patches are on the
    device already, otherwise one. With ``skip_blank``, patches whose cell is of one colour (see
    `ips.patches.margins`) are marked as skipped in the table instead. ``size`` is the number of
    patches of a micro-batch, by default that of `ips.nn.embedding.micro_batch`.
    """
    group: list[Block] = []
    count = 0
    for image, (source, table) in enumerate(zip(sources, tables, strict=True)):
        block = size or micro_batch(source.shape, device)
        block *= _MICRO_BATCHES if _on_device(source, device) else 1
        around = margins(source) if skip_blank else None
        if around is not None:
            known = torch.from_numpy(source.known_blank) & ~table.done
            table.skip(known.nonzero().squeeze(1))
        for indices, patches in _read(source, table.missing(), device, size=block):
            if around is not None:
                skipped = _blank_cells(patches, around[indices])
                patches, skipped = patches[~skipped], skipped.cpu()
                table.skip(indices[skipped])
                indices = indices[~skipped]
            group.append(Block(image, indices, patches))
            count += len(indices)
            if count >= block:
                yield group
                group, count = [], 0
    if group:
        yield group


def _blank_cells(patches: Tensor, widths: Tensor) -> Tensor:
    """Which patches ``(n, ...)`` have a single colour within margins of these ``(n,)`` widths."""
    narrowing = sorted(widths.unique().tolist(), reverse=True)
    found = blank(_without_margin(patches, narrowing[0]))
    for width in narrowing[1:]:
        rest = (found & (widths == width).to(found.device)).nonzero()[:, 0]
        found[rest] = blank(_without_margin(patches[rest], width))
    return found


def _without_margin(patches: Tensor, width: int) -> Tensor:
    return patches[..., width:-width, width:-width] if width else patches


def _on_device(source: PatchSource, device: torch.device) -> bool:
    return source.patches is not None and source.patches.device.type == device.type


def _read(
    source: PatchSource, missing: Tensor, device: torch.device, *, size: int
) -> Iterator[tuple[Tensor, Tensor]]:
    if source.patches is None or not _on_device(source, device):
        yield from prefetch(source, missing, size=size, device=device)
        return
    for start in range(0, len(missing), size):
        indices = missing[start : start + size]
        first, end = int(indices[0]), int(indices[-1]) + 1
        adjacent = end - first == len(indices)  # a slice needs no copy
        yield indices, source.patches[slice(first, end) if adjacent else indices.to(device)]


class Shortlist:
    """Keep the embeddings of the best patches so far, while an image is scored.

    Which M patches are selected is known only at the end of a pass, and keeping all N embeddings
    until then is what the method avoids. So this list keeps a multiple of M. A selected patch that
    it does not contain is embedded again, which gives the same result.

    Args:
        size: number of patches to keep at least.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._rows: tuple[Tensor, ...] | None = None  # indices, logits, embeddings

    def add(self, indices: Tensor, logits: Tensor, x: Tensor) -> None:
        """Offer patches ``(n,)`` with their logits ``(n, S)`` and embeddings ``(n, D)``."""
        rows: tuple[Tensor, ...] = (indices, logits, x)
        if self._rows is not None:
            rows = tuple(torch.cat(pair) for pair in zip(self._rows, rows, strict=True))
        if len(rows[0]) > 2 * self._size:
            best = selection.exact(rows[1], keep=self._size).indices
            rows = tuple(column[best] for column in rows)
        self._rows = rows

    def find(self, indices: Tensor, source: PatchSource, embed: Embed) -> Tensor:
        """Return the embeddings ``(k, D)`` of patches; read and embed those not in the list."""
        if self._rows is None:
            return _embed(indices, source, embed)
        stored, order = self._rows[0].sort()
        at = torch.searchsorted(stored, indices).clamp(max=len(stored) - 1)
        x = self._rows[2][order[at]]  # (k, D)
        missing = stored[at] != indices
        if missing.any():
            x[missing] = _embed(indices[missing], source, embed)
        return x


def _embed(indices: Tensor, source: PatchSource, embed: Embed) -> Tensor:
    # In micro-batches, because these can be all patches of the image.
    parts = indices.split(micro_batch(source.shape, indices.device))
    return joined([embed(source.read(part.cpu()).to(indices.device)) for part in parts])
