"""Find blank patches, and patches that are equal byte for byte.

Letters: n patches, u distinct ones, P bytes of a patch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Distinct:
    """The distinct patches among n.

    Attributes:
        first: ``(u,)`` index of the first occurrence of each.
        group: ``(n,)`` which of the u each patch equals: ``patches[first][group] == patches``.
    """

    first: Tensor
    group: Tensor


def blank(patches: Tensor) -> Tensor:
    """Return ``(n,)``, True for patches ``(n, C, h, w)`` of a single colour."""
    if patches.dim() != 4:
        return torch.zeros(len(patches), dtype=torch.bool, device=patches.device)
    colours = patches.flatten(2)  # (n, C, h·w)
    return (colours.amin(dim=2) == colours.amax(dim=2)).all(dim=1)


def distinct(patches: Tensor) -> Distinct:
    """Group equal uint8 patches ``(n, ...)`` by a hash, and confirm it by comparison."""
    rows = patches.flatten(1)  # (n, P)
    words = F.pad(rows, (0, -rows.shape[1] % 8)).contiguous().view(torch.int64)  # (n, P / 8)
    _, group = torch.unique(_hashes(words), return_inverse=True)
    places = torch.arange(len(patches), device=patches.device)
    count = int(group.max()) + 1
    first = places.new_full((count,), len(patches)).scatter_reduce(0, group, places, "amin")
    if not torch.equal(words.index_select(0, first[group]), words):
        return Distinct(first=places, group=places)  # a hash collision
    return Distinct(first=first, group=group)


def _hashes(words: Tensor) -> Tensor:
    """Hash each row of 8-byte words to 64 bits, with a random odd weight for every word."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randint(-(2**62), 2**62, words.shape[1:], generator=generator) * 2 + 1
    mixed = words ^ (
        words >> 29
    )  # otherwise the high byte of a word only affects the high byte of the hash
    return mixed.mul_(weights.to(words.device)).sum(dim=1)
