"""Prefetching reads every patch once, in order, and only a few blocks ahead."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator

import pytest
import torch
from torch import Tensor

from ips.patches import MemoryPatches, prefetch, read_through
from ips.patches.source import Indices, PatchSource

CPU = torch.device("cpu")


class Watched(MemoryPatches):
    """Counts the started reads, and can fail at a given patch."""

    def __init__(self, count: int, *, broken: int | None = None) -> None:
        super().__init__(torch.arange(count, dtype=torch.float32).view(-1, 1))
        self.broken = broken
        self.started = threading.Semaphore(0)
        self.reads: list[list[int]] = []

    def read(self, indices: Indices) -> Tensor:
        numbers = torch.as_tensor(indices).tolist()
        self.reads.append(numbers)
        self.started.release()
        if self.broken in numbers:
            raise OSError("the disk is gone")
        return super().read(indices)


def readers() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("ips-read")]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert readers() == []


@pytest.mark.parametrize("count", [0, 1, 4, 5, 23])
@pytest.mark.parametrize("ahead", [1, 2, 9])
def test_blocks_contain_every_patch_once_in_order(count: int, ahead: int) -> None:
    source = Watched(count)
    blocks = list(prefetch(source, size=4, device=CPU, ahead=ahead))
    assert [number for indices, _ in blocks for number in indices.tolist()] == list(range(count))
    assert all(len(indices) == 4 for indices, _ in blocks[:-1])
    assert all(torch.equal(patches[:, 0], indices.float()) for indices, patches in blocks)
    assert len(source.reads) == len(blocks)


@pytest.mark.parametrize("wanted", [[], [3], [0, 1, 2, 9, 10, 22], list(range(7, 23))])
def test_only_requested_patches_are_read(wanted: list[int]) -> None:
    source = Watched(23)
    blocks = prefetch(source, torch.tensor(wanted, dtype=torch.int64), size=4, device=CPU)
    read = [(indices.tolist(), patches[:, 0].tolist()) for indices, patches in blocks]
    assert [number for indices, _ in read for number in indices] == wanted
    assert all(indices == patches for indices, patches in read)


@pytest.mark.parametrize("ahead", [1, 2, 5])
def test_no_more_than_the_blocks_ahead_are_read(ahead: int) -> None:
    source = Watched(40)
    for taken, _ in enumerate(prefetch(source, size=2, device=CPU, ahead=ahead), start=1):
        assert len(source.reads) <= taken + ahead


def test_the_next_blocks_are_read_while_the_caller_works() -> None:
    source = Watched(40)
    blocks = prefetch(source, size=2, device=CPU, ahead=2)
    assert isinstance(blocks, Generator)
    next(blocks)
    for _ in range(3):  # the block in hand and two ahead, with no further call
        assert source.started.acquire(timeout=60)
    blocks.close()


def test_stopping_early_reads_nothing_more() -> None:
    source = Watched(1_000)
    for _ in prefetch(source, size=2, device=CPU, ahead=2):
        break
    assert len(source.reads) <= 3


def test_a_failed_read_is_the_callers_error_after_the_good_blocks() -> None:
    source = Watched(40, broken=9)
    blocks = prefetch(source, size=4, device=CPU)
    assert [next(blocks)[0].tolist() for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(OSError, match="disk"):
        next(blocks)
    assert len(source.reads) <= 5


class Others:
    """Readers that add 1000, so that their patches can be recognised."""

    count = 3

    def begin(self, source: PatchSource) -> Callable[[Tensor], Tensor]:
        return lambda indices: source.read(indices) + 1000


def test_other_readers_read_more_blocks_ahead() -> None:
    source = Watched(20)
    with read_through(Others()):
        blocks = prefetch(source, size=2, device=CPU, ahead=2)
        indices, patches = next(blocks)
        assert torch.equal(patches[:, 0], indices + 1000.0)
        for _ in range(4):  # the first block, and three more
            source.started.acquire()
        assert sum(len(patches) for _, patches in blocks) == 18
    assert torch.equal(next(prefetch(source, size=2, device=CPU))[1][:, 0], torch.tensor([0.0, 1]))
