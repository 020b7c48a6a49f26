"""Training, validation and test split: their names, and random splits by class and by group."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from ips.errors import DataError

Split = Literal["train", "validation", "test"]

# A part of the seed of images that are drawn: another number means other images.
SPLIT_NUMBERS: dict[Split, int] = {"train": 0, "test": 1, "validation": 2}


def check_split(split: str) -> None:
    """Raise an error if ``split`` is not a known split."""
    if split not in SPLIT_NUMBERS:
        raise DataError(f"there is no split {split!r}: take 'train', 'validation' or 'test'")


def stratified_split(
    labels: Sequence[Hashable], *, test: float, seed: int
) -> tuple[list[int], list[int]]:
    """Split images at random, with the same share of every class in both parts.

    All classes with a single image are treated as one class. Every other class occurs in both
    parts; if the smaller part has too few images for that, the larger classes come first. The
    result depends only on the labels, their order and the seed.

    Args:
        labels: class of each image.
        test: share of test images, between 0 and 1.
        seed: random seed.

    Returns:
        Indices for training and indices for testing, both ascending.

    >>> train, held_out = stratified_split(["a"] * 8 + ["b"] * 4, test=0.25, seed=0)
    >>> len(train), [i >= 8 for i in held_out]
    (9, [False, False, True])
    """
    if not 0 < test < 1:
        raise DataError(f"test={test}, expected the share of test images, between 0 and 1")
    if len(labels) < 2:
        raise DataError(
            f"{len(labels)} images: there is nothing to split, add images or a split column to the "
            "table"
        )
    # A dict keeps the order of first appearance; the order of a set depends on the hash seed.
    members: dict[Hashable, list[int]] = {}
    for index, label in enumerate(labels):
        members.setdefault(label, []).append(index)
    strata = [indices for indices in members.values() if len(indices) > 1]
    if singles := [indices[0] for indices in members.values() if len(indices) == 1]:
        strata.append(singles)
    held_out: set[int] = set()
    random = np.random.default_rng(seed)
    for indices, count in zip(strata, _test_counts([len(i) for i in strata], test), strict=True):
        held_out.update(random.permutation(indices)[:count].tolist())
    return [i for i in range(len(labels)) if i not in held_out], sorted(held_out)


def _test_counts(sizes: list[int], test: float) -> list[int]:
    """Number of test images of each class, with the exact total.

    Counts start at the rounded shares, with each class in both parts. Until the total is right,
    the class furthest from its share gains or loses one. A class leaves a part only if it must.
    """
    size = np.array(sizes)
    total = min(max(round(sum(sizes) * test), 1), sum(sizes) - 1)
    exact = size * test
    most = size - 1
    least = np.minimum(1, most)
    counts = np.clip(np.floor(exact).astype(int), least, most)
    while int(counts.sum()) != total:
        step = 1 if counts.sum() < total else -1
        changed = counts + step
        allowed = (least <= changed) & (changed <= most)
        if not allowed.any():
            allowed = (changed >= 0) & (changed <= size)
        counts[np.argmax(np.where(allowed, (exact - counts) * step, -np.inf))] += step
    result: list[int] = counts.tolist()
    return result


def grouped_split(
    labels: Sequence[Hashable], groups: Sequence[Hashable], *, shares: Sequence[float], seed: int
) -> list[int]:
    """Divide images into parts at random, without dividing a group such as a patient.

    Groups are placed one after the other, the largest first, wherever the shares of all classes
    come closest to those that are asked for. The result depends only on the labels, the groups,
    their order and the seed.

    Args:
        labels: class of each image.
        groups: group of each image.
        shares: share of the images in each part; the sum is 1.
        seed: random seed.

    Returns:
        Part of each image, from 0.

    >>> grouped_split("aabbab", ["p", "p", "q", "q", "r", "r"], shares=[2 / 3, 1 / 3], seed=0)
    [0, 0, 0, 0, 1, 1]
    """
    numbers = {group: i for i, group in enumerate(dict.fromkeys(groups))}
    classes = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    if len(numbers) < len(shares):
        raise DataError(
            f"{len(numbers)} patients or groups cannot be divided into {len(shares)} parts: add "
            "images of others, or a split column to the table"
        )
    counts = np.zeros((len(numbers), len(classes)))
    for label, group in zip(labels, groups, strict=True):
        counts[numbers[group], classes[label]] += 1
    part_of = _place(counts / counts.sum(axis=0), np.array(shares), np.random.default_rng(seed))
    return [part_of[numbers[group]] for group in groups]


def _place(
    weights: npt.NDArray[np.float64], shares: npt.NDArray[np.float64], random: np.random.Generator
) -> list[int]:
    """Part of each group, from its share of every class, ``(groups, classes)``."""
    shuffled = random.permutation(len(weights))
    order = shuffled[np.argsort(-weights[shuffled].max(axis=1), kind="stable")]
    filled = np.zeros((len(shares), weights.shape[1]))  # share of every class in each part
    places = np.zeros(len(weights), dtype=np.int64)
    for placed, group in enumerate(order):
        lacking = shares[:, None] - filled
        # What the squared differences, relative to the shares, gain from the group in each part.
        gain = (lacking**2 - (lacking - weights[group]) ** 2).sum(axis=1) / shares
        empty = ~filled.any(axis=1)
        if empty.sum() == len(weights) - placed:  # the rest is needed to fill every part
            gain[~empty] = -np.inf
        places[group] = part = int(gain.argmax())
        filled[part] += weights[group]
    result: list[int] = places.tolist()
    return result


def divided_groups(splits: Mapping[Hashable, Sequence[str]]) -> list[Hashable]:
    """The groups whose images are in more than one split, from the splits of each group."""
    return [group for group, names in splits.items() if len(set(names)) > 1]
