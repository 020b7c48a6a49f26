"""Score tables, and the blocks of patches that fill them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ips.models import ScoreTable
from ips.models.scoring import lazy_runs, unscored_blocks
from ips.nn.embedding import micro_batch
from ips.patches import MemoryPatches, PatchSource

CPU = torch.device("cpu")
SHAPE = (1, 64, 64)
SIZE = micro_batch(SHAPE, CPU)


class Stored(PatchSource):
    """A source whose patches have to be read."""

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


def table(count: int) -> ScoreTable:
    return ScoreTable(torch.full((count, 1), torch.nan))


def tables(sources: list[MemoryPatches]) -> list[ScoreTable]:
    return [table(len(source)) for source in sources]


def fill(
    sources: list[PatchSource], filled: list[ScoreTable], *, skip_blank: bool
) -> list[list[int]]:
    """Put the sum of each patch into the tables; return the indices read of each image."""
    read: list[list[int]] = [[] for _ in sources]
    for blocks in unscored_blocks(sources, filled, CPU, skip_blank=skip_blank):
        for block in blocks:
            values = block.patches.flatten(1).sum(dim=1, keepdim=True).float()
            filled[block.image].put(block.indices, values)
            read[block.image] += block.indices.tolist()
    return read


@pytest.mark.parametrize("skip_blank", [False, True])
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("begun", ["nothing", "the first half", "every third patch", "all"])
def test_each_missing_patch_is_scored_once(skip_blank: bool, stored: bool, begun: str) -> None:
    images = [image(n, seed=n) for n in (1, SIZE + 3, 17 * SIZE)]
    sources: list[PatchSource] = [Stored(i) for i in images] if stored else list(images)
    filled = tables(images)
    for source, part in zip(images, filled, strict=True):
        every = torch.arange(len(source))
        known = {
            "nothing": every[:0],
            "the first half": every[: len(every) // 2],
            "every third patch": every[::3],
            "all": every,
        }[begun]
        part.put(known, torch.full((len(known), 1), -5.0))
    missing = [part.missing().tolist() for part in filled]
    read = fill(sources, filled, skip_blank=skip_blank)
    for source, part, wanted, got in zip(images, filled, missing, read, strict=True):
        rows = source.patches.flatten(1)
        blank = (rows == rows[:, :1]).all(dim=1)
        expected = rows.sum(dim=1, keepdim=True).float()
        if skip_blank:
            expected[blank] = -torch.inf
        known = torch.ones(len(source), dtype=torch.bool)
        known[wanted] = False
        expected[known] = -5.0
        assert torch.equal(part.logits, expected)
        assert got == [i for i in wanted if not (skip_blank and blank[i])]
        assert not len(part.missing())


def test_a_table_is_filled_in_any_order() -> None:
    heard: list[int] = []
    scores = ScoreTable(torch.zeros(5, 2), progress=heard.append)
    scores.put(torch.tensor([3, 0]), torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert scores.missing().tolist() == [1, 2, 4]
    scores.put(torch.tensor([4]), torch.full((1, 2), -torch.inf))
    assert scores.logits.tolist()[0] == [3, 4]
    assert scores.logits.tolist()[3] == [1, 2]
    assert heard == [2, 3]
    assert scores.selectable()[1].tolist() == [True, True, True, True, False]


def test_if_all_patches_are_skipped_all_can_be_selected() -> None:
    scores = table(3)
    scores.put(torch.arange(3), torch.full((3, 1), -torch.inf))
    logits, mask = scores.selectable()
    assert mask.all()
    assert not logits.any()


def test_images_in_memory_share_micro_batches() -> None:
    images = [image(20, seed=seed) for seed in range(6)]
    groups = list(unscored_blocks(images, tables(images), CPU, skip_blank=True))
    assert [len(blocks) for blocks in groups] == [6]


def test_a_group_is_not_larger_than_needed_for_full_micro_batches() -> None:
    images = [image(10 * SIZE, seed=seed, blank=0) for seed in range(4)]
    groups = list(unscored_blocks(images, tables(images), CPU, skip_blank=False))
    assert [[block.image for block in blocks] for blocks in groups] == [[0, 1], [2, 3]]


def test_stored_patches_come_one_micro_batch_at_a_time() -> None:
    images = [image(3 * SIZE, seed=seed, blank=0) for seed in range(2)]
    stored: list[PatchSource] = [Stored(i) for i in images]
    groups = list(unscored_blocks(stored, tables(images), CPU, skip_blank=False))
    assert [[len(block.indices) for block in blocks] for blocks in groups] == [[SIZE]] * 6


def test_few_stored_patches_are_joined_across_images_to_one_micro_batch() -> None:
    images = [image(SIZE // 2, seed=seed, blank=0) for seed in range(5)]
    stored: list[PatchSource] = [Stored(i) for i in images]
    groups = list(unscored_blocks(stored, tables(images), CPU, skip_blank=False))
    assert [[block.image for block in blocks] for blocks in groups] == [[0, 1], [2, 3], [4]]


def test_a_micro_batch_of_another_size() -> None:
    images = [image(6, seed=seed, blank=0) for seed in range(2)]
    stored: list[PatchSource] = [Stored(i) for i in images]
    groups = list(unscored_blocks(stored, tables(images), CPU, skip_blank=False, size=4))
    assert [[len(block.indices) for block in blocks] for blocks in groups] == [[4], [2, 4], [2]]


def test_lazy_loading_scores_small_images_together_and_large_ones_alone() -> None:
    def runs(*counts: int) -> list[tuple[int, int]]:
        sources = [Stored(image(count, seed=0)) for count in counts]
        return [(run.start, run.stop) for run in lazy_runs(sources, CPU, skip_blank=False)]

    assert runs(5, 5, 5) == [(0, 3)]
    assert runs(16 * SIZE, 16 * SIZE, 5, 5) == [(0, 1), (1, 2), (2, 4)]
    assert runs(5, 16 * SIZE, 5) == [(0, 2), (2, 3)]
