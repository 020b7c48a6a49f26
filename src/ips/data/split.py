"""Which images are kept for testing: a seeded draw with the same share of every class."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from ips.errors import DataError


def stratified_split(
    labels: Sequence[Hashable], *, test: float, seed: int
) -> tuple[list[int], list[int]]:
    """Indices for training and for testing, ascending, about ``test`` of each class in the latter.

    Every class of two or more is on both sides; a class of one is for training. The same labels
    in the same order with the same seed give the same split everywhere.

    >>> train, held_out = stratified_split(["a"] * 8 + ["b"] * 4, test=0.25, seed=0)
    >>> len(train), [i >= 8 for i in held_out]
    (9, [False, False, True])
    """
    if not 0 < test < 1:
        raise DataError(f"test={test}, expected the share to test on, between 0 and 1")
    # A dict keeps the order of first appearance, a set's order would change with the hash seed.
    members: dict[Hashable, list[int]] = {}
    for index, label in enumerate(labels):
        members.setdefault(label, []).append(index)
    if not any(len(indices) > 1 for indices in members.values()):
        raise DataError(
            f"{len(labels)} images and no class with two of them: there is nothing to split, "
            f"add images or name the split in the table"
        )

    held_out: set[int] = set()
    random = np.random.default_rng(seed)
    for indices, count in zip(
        members.values(), _shares([len(i) for i in members.values()], test), strict=True
    ):
        held_out.update(random.permutation(indices)[:count].tolist())
    return [i for i in range(len(labels)) if i not in held_out], sorted(held_out)


def _shares(sizes: list[int], test: float) -> list[int]:
    """How many of each class to test on, by largest remainder so that the total fits too."""
    exact = np.array(sizes) * test
    counts = np.floor(exact).astype(int)
    short = round(sum(sizes) * test) - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:short]] += 1
    limits = np.array(sizes) - 1
    return [int(n) for n in np.clip(counts, np.minimum(1, limits), limits)]
