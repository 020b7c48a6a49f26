"""Patches that show nothing, and patches that are byte for byte the same.

Letters: n patches, u of them different, P bytes of a patch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Distinct:
    """The different patches among n.

    Attributes:
        first: ``(u,)`` the first place of each.
        group: ``(n,)`` which of the u each patch is: ``patches[first][group] == patches``.
    """

    first: Tensor
    group: Tensor


def blank(patches: Tensor) -> Tensor:
    """``(n,)``, True where all pixels of a patch ``(n, C, h, w)`` have one colour."""
    if patches.dim() != 4:
        return torch.zeros(len(patches), dtype=torch.bool, device=patches.device)
    colours = patches.flatten(2)  # (n, C, h·w)
    return (colours.amin(dim=2) == colours.amax(dim=2)).all(dim=1)


def distinct(patches: Tensor) -> Distinct:
    """Group the equal ones among uint8 ``patches`` ``(n, ...)``.

    They are found by fingerprint and confirmed by comparison.
    """
    rows = patches.flatten(1)  # (n, P)
    words = F.pad(rows, (0, -rows.shape[1] % 8)).contiguous().view(torch.int64)  # (n, P / 8)
    _, group = torch.unique(_fingerprints(words), return_inverse=True)
    places = torch.arange(len(patches), device=patches.device)
    count = int(group.max()) + 1
    first = places.new_full((count,), len(patches)).scatter_reduce(0, group, places, "amin")
    if not torch.equal(words.index_select(0, first[group]), words):
        return Distinct(first=places, group=places)  # two patches with one fingerprint
    return Distinct(first=first, group=group)


def _fingerprints(words: Tensor) -> Tensor:
    """A 64-bit hash of each row of 8-byte words: a random odd weight for every word."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randint(-(2**62), 2**62, words.shape[1:], generator=generator) * 2 + 1
    mixed = words ^ (words >> 29)  # or a word's high byte would move the hash's high byte alone
    return mixed.mul_(weights.to(words.device)).sum(dim=1)
