"""The short list stores a few embeddings; the others are computed again."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ips.models.scoring import Shortlist
from ips.patches import MemoryPatches

N, S, D = 60, 3, 4
LOGITS, X = torch.randn(N, S), torch.randn(N, D)
SOURCE = MemoryPatches(torch.arange(N).unsqueeze(1))  # a patch holds its own number


class Embed:
    """Of a patch that holds its own number; remembers which were embedded."""

    def __init__(self) -> None:
        self.made: list[int] = []

    def __call__(self, patches: Tensor) -> Tensor:
        self.made += patches[:, 0].tolist()
        return X[patches[:, 0]]


def filled(size: int, block: int, logits: Tensor = LOGITS) -> Shortlist:
    shortlist = Shortlist(size)
    for indices in torch.arange(N).split(block):
        shortlist.add(indices, logits[indices], X[indices])
    return shortlist


@pytest.mark.parametrize("size", [1, 5, 100])
@pytest.mark.parametrize("block", [1, 7, N])
def test_stored_and_recomputed_embeddings_are_equal(size: int, block: int) -> None:
    wanted, embed = torch.randperm(N)[:10], Embed()
    assert torch.equal(filled(size, block).find(wanted, SOURCE, embed), X[wanted])
    assert len(embed.made) == len(set(embed.made))


@pytest.mark.parametrize("block", [1, 7, N])
def test_with_one_channel_the_best_are_always_stored(block: int) -> None:
    best, embed = LOGITS[:, 0].topk(5).indices, Embed()
    filled(5, block, LOGITS[:, :1]).find(best, SOURCE, embed)
    assert embed.made == []


def test_the_list_does_not_grow_with_the_number_of_patches() -> None:
    embed, every = Embed(), torch.arange(N)
    filled(5, 7).find(every, SOURCE, embed)
    assert N - len(embed.made) <= 2 * 5


def test_an_empty_list_embeds_everything() -> None:
    wanted, embed = torch.tensor([4, 2]), Embed()
    assert torch.equal(Shortlist(3).find(wanted, SOURCE, embed), X[wanted])
    assert embed.made == [4, 2]
