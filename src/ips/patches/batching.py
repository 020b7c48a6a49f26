"""Batches: read patches ahead of the computation, and pad images with different N to one tensor.

Letters: B images, N patches of the image with the most.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

import torch
from torch import Tensor

from ips.patches.source import PatchSource


class Readers(Protocol):
    """Other processes that read patches for this one.

    Attributes:
        count: number of blocks that can be read at the same time.
    """

    count: int

    def begin(self, source: PatchSource) -> Callable[[Tensor], Tensor]:
        """A function that reads patches of ``source`` by index, from several threads."""


_readers: ContextVar[Readers | None] = ContextVar("readers", default=None)


@contextmanager
def read_through(readers: Readers) -> Iterator[None]:
    """Let `prefetch` read through ``readers`` inside the block, instead of in this process."""
    token = _readers.set(readers)
    try:
        yield
    finally:
        _readers.reset(token)


def prefetch(
    source: PatchSource,
    indices: Tensor | None = None,
    *,
    size: int,
    device: torch.device,
    ahead: int = 2,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Read patches ``size`` at a time, by default all in order; yield (indices, patches).

    At most ``ahead`` blocks are read while the caller processes the current one, so memory does not
    depend on the number of patches. On a GPU the copy runs from pinned memory on its own stream,
    in parallel to the computation. Inside `read_through`, other processes read.
    """
    read_patches: Callable[[Tensor], Tensor] = source.read
    if (readers := _readers.get()) is not None:
        read_patches, ahead = readers.begin(source), max(ahead, readers.count)
    cuda = device.type == "cuda"
    side = torch.cuda.Stream(device) if cuda else None

    def read(indices: Tensor) -> Tensor:
        patches = read_patches(indices)
        if not cuda or patches.device.type == "cuda":
            return patches.to(device)
        with torch.cuda.stream(side):
            return patches.pin_memory().to(device, non_blocking=True)

    wanted = torch.arange(len(source)) if indices is None else indices
    blocks = (wanted[first : first + size] for first in range(0, len(wanted), size))
    waiting: deque[tuple[Tensor, Future[Tensor]]] = deque()
    with ThreadPoolExecutor(max_workers=ahead, thread_name_prefix="ips-read") as pool:
        try:
            for block in blocks:
                waiting.append((block, pool.submit(read, block)))
                if len(waiting) <= ahead:
                    continue
                yield _ready(*waiting.popleft(), side)
            while waiting:
                yield _ready(*waiting.popleft(), side)
        finally:  # the caller stopped early, or a read failed
            for _, future in waiting:
                future.cancel()


def _ready(
    indices: Tensor, future: Future[Tensor], side: torch.cuda.Stream | None
) -> tuple[Tensor, Tensor]:
    patches = future.result()
    if side is not None:
        current = torch.cuda.current_stream(patches.device)
        current.wait_stream(side)
        patches.record_stream(current)
    return indices, patches


def pad(rows: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Stack the rows ``(n_b, ...)`` of each image to ``(B, N, ...)``, padded with zeros.

    Returns:
        the padded tensor, and its mask ``(B, N)``: False for padding.

    >>> padded, mask = pad([torch.ones(2, 3), torch.ones(1, 3)])
    >>> padded.shape, mask.tolist()
    (torch.Size([2, 2, 3]), [[True, True], [True, False]])
    """
    if len(rows) == 1:  # no padding, and no copy of the table of a huge image
        return rows[0].unsqueeze(0), rows[0].new_ones(1, len(rows[0]), dtype=torch.bool)
    counts = torch.tensor([len(row) for row in rows], device=rows[0].device)
    N = int(counts.max())
    mask = torch.arange(N, device=counts.device) < counts.unsqueeze(1)  # (B, N)
    padded = rows[0].new_zeros(len(rows), N, *rows[0].shape[1:])
    for b, row in enumerate(rows):
        padded[b, : len(row)] = row
    return padded, mask
