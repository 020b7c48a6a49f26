"""Patches reach the encoder in full micro-batches, whichever images they are from."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ips.models.blocks import blocks_of
from ips.models.table import ScoreTable, empty_table
from ips.nn.embedding import micro_batch
from ips.patches import MemoryPatches, PatchSource

CPU = torch.device("cpu")
SHAPE = (1, 2, 2)


class Read(PatchSource):
    """A source that is not in memory, as far as anyone can tell."""

    def __init__(self, patches: MemoryPatches) -> None:
        self._patches = patches
        self.name, self.coords, self.extent = patches.name, patches.coords, patches.extent
        self.shape = patches.shape

    def __len__(self) -> int:
        return len(self._patches)

    def read(self, indices: object) -> Tensor:
        return self._patches.read(indices)  # type: ignore[arg-type]


def image(count: int, *, seed: int, blank: float = 0.5) -> MemoryPatches:
    generator = torch.Generator().manual_seed(seed)
    patches = torch.randint(1, 255, (count, *SHAPE), generator=generator, dtype=torch.uint8)
    patches[:, 0, 0, 0] = 0  # none is blank by chance
    patches[torch.rand(count, generator=generator) < blank] = 7
    return MemoryPatches(patches)


def tables(sources: list[MemoryPatches]) -> list[ScoreTable]:
    return [empty_table(len(source), 1, device=CPU) for source in sources]


def sums(sources: list[PatchSource], *, skip_blank: bool) -> list[Tensor]:
    """Every patch's own sum, by way of blocks and tables."""
    filled = [empty_table(len(source), 1, device=CPU) for source in sources]
    for blocks in blocks_of(sources, filled, CPU, skip_blank=skip_blank):
        for block in blocks:
            value = block.patches.flatten(1).sum(dim=1, keepdim=True).float()
            filled[block.image].add(block.spread(value))
    return [table.logits for table in filled]


@pytest.mark.parametrize("skip_blank", [False, True])
@pytest.mark.parametrize("lazy", [False, True])
def test_each_patch_comes_once_to_its_own_row(skip_blank: bool, lazy: bool) -> None:
    size = micro_batch(SHAPE, CPU)
    images = [image(n, seed=n) for n in (1, size + 3, 17 * size)]
    sources: list[PatchSource] = [Read(i) for i in images] if lazy else list(images)
    for got, source in zip(sums(sources, skip_blank=skip_blank), images, strict=True):
        rows = source.patches.flatten(1)
        expected = rows.sum(dim=1, keepdim=True).float()
        if skip_blank:
            expected[(rows == rows[:, :1]).all(dim=1)] = -torch.inf
        assert torch.equal(got, expected)


def test_images_in_memory_share_micro_batches() -> None:
    images = [image(20, seed=seed) for seed in range(6)]
    lists = list(blocks_of(images, tables(images), CPU, skip_blank=True))
    assert [len(blocks) for blocks in lists] == [6]


def test_no_more_goes_together_than_needed_for_full_micro_batches() -> None:
    size = micro_batch(SHAPE, CPU)
    images = [image(10 * size, seed=seed, blank=0) for seed in range(4)]
    lists = list(blocks_of(images, tables(images), CPU, skip_blank=False))
    assert [[block.image for block in blocks] for blocks in lists] == [[0, 1], [2, 3]]


def test_what_is_read_comes_one_micro_batch_at_a_time() -> None:
    size = micro_batch(SHAPE, CPU)
    images = [image(3 * size, seed=seed) for seed in range(2)]
    filled = tables(images)
    for blocks in blocks_of([Read(i) for i in images], filled, CPU, skip_blank=True):
        assert len(blocks) == 1
        assert len(blocks[0].shown) == size
