"""Equal and blank patches are found."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ips.nn import embedding
from ips.nn.embedding import blank, distinct


def check(patches: Tensor) -> None:
    first, group = distinct(patches)
    contents = [bytes(patch.flatten().tolist()) for patch in patches]
    assert torch.equal(patches[first][group], patches)
    assert sorted(first.tolist()) == sorted({contents.index(row) for row in contents})


@given(
    n=st.integers(1, 30),
    shape=st.sampled_from([(1,), (7,), (8,), (3, 5, 5), (1, 4, 4)]),
    values=st.integers(1, 256),
    seed=st.integers(0, 2**32),
)
def test_groups_are_the_equal_patches(
    n: int, shape: tuple[int, ...], values: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    patches = torch.randint(values, (n, *shape), dtype=torch.uint8, generator=generator)
    patches = patches[torch.randint(n, (n,), generator=generator)]
    check(patches)


@pytest.mark.parametrize("byte", range(16))
def test_one_different_bit_makes_patches_distinct(byte: int) -> None:
    patches = torch.zeros(9, 16, dtype=torch.uint8)
    for bit in range(8):
        patches[bit + 1, byte] = 1 << bit
    assert len(distinct(patches)[0]) == 9


def test_the_memory_layout_does_not_matter() -> None:
    patches = torch.randint(2, (4, 4, 1, 30), dtype=torch.uint8).permute(3, 2, 0, 1)
    assert not patches.is_contiguous()
    check(patches)
    check(patches[::2])


def test_patches_with_the_same_hash_stay_distinct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "_hashes", lambda words: torch.zeros(len(words)))
    patches = torch.tensor([[1], [2], [1]], dtype=torch.uint8)
    first, group = distinct(patches)
    assert torch.equal(patches[first][group], patches)
    assert len(first) == 3


def test_blank_patches_have_one_colour() -> None:
    patches = torch.zeros(5, 3, 4, 4, dtype=torch.uint8)
    patches[1] = 255
    patches[2, 0] = 7  # red all over
    patches[3, 1, 2, 3] = 1  # one pixel differs
    patches[4] = torch.arange(16, dtype=torch.uint8).view(4, 4)
    assert blank(patches).tolist() == [True, True, True, False, False]
    assert not blank(torch.zeros(2, 6)).any()  # features are never blank
