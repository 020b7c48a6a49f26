"""Which images are kept for testing: a seeded draw with the same share of every class."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from ips.errors import DataError


def stratified_split(
    labels: Sequence[Hashable], *, test: float, seed: int
) -> tuple[list[int], list[int]]:
    """Indices for training and for testing, ascending, ``test`` of all images in the latter.

    About that share of each class is held out. Classes of one image are drawn from together, as
    if they were one class. Every class of two or more is on both sides if the share asked for
    leaves room; if not, the larger classes are. The same labels in the same order with the same
    seed give the same split everywhere.

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
    if len(labels) < 2:
        raise DataError(
            f"{len(labels)} images: there is nothing to split, add images or name the split in "
            f"the table"
        )

    strata = [indices for indices in members.values() if len(indices) > 1]
    alone = [index for indices in members.values() if len(indices) == 1 for index in indices]
    if alone:
        strata.append(alone)
    held_out: set[int] = set()
    random = np.random.default_rng(seed)
    for indices, count in zip(strata, _shares([len(i) for i in strata], test), strict=True):
        held_out.update(random.permutation(indices)[:count].tolist())
    return [i for i in range(len(labels)) if i not in held_out], sorted(held_out)


def _shares(sizes: list[int], test: float) -> list[int]:
    """How many of each class to test on: the total is right, and then each class as near as can be.

    Counts start on both sides of every class, and whichever is furthest from its share gives or
    takes one until the total fits. One side of a class empties only when nothing else is left.
    """
    size = np.array(sizes)
    total = min(max(round(sum(sizes) * test), 1), sum(sizes) - 1)
    exact = size * test
    most = size - 1
    least = np.minimum(1, most)
    counts = np.clip(np.floor(exact).astype(int), least, most)
    while int(counts.sum()) != total:
        step = 1 if counts.sum() < total else -1
        moved = counts + step
        open_to = (least <= moved) & (moved <= most)
        if not open_to.any():
            open_to = (moved >= 0) & (moved <= size)
        counts[np.argmax(np.where(open_to, (exact - counts) * step, -np.inf))] += step
    return [int(n) for n in counts]
