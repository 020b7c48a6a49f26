"""Stratified splits."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ips.data.split import grouped_split, stratified_split
from ips.errors import DataError


@dataclass(frozen=True)
class Salted:
    """A label whose hash depends on a salt, like that of a string on the hash seed."""

    name: str
    salt: int

    def __hash__(self) -> int:
        return hash((self.name, self.salt))


@given(
    labels=st.lists(st.sampled_from("abcde"), min_size=6, max_size=80),
    test=st.floats(0.05, 0.95),
    seed=st.integers(0, 1000),
)
def test_both_parts_have_every_class_and_the_right_size(
    labels: list[str], test: float, seed: int
) -> None:
    train, held_out = stratified_split(labels, test=test, seed=seed)
    assert sorted(train + held_out) == list(range(len(labels)))
    assert (train, held_out) == (sorted(train), sorted(held_out))
    total = min(max(round(len(labels) * test), 1), len(labels) - 1)
    assert len(held_out) == total
    sizes = [labels.count(label) for label in set(labels)]
    strata = [size for size in [*sizes, sizes.count(1)] if size > 1]  # classes of one are one
    room = len(strata) <= total <= sum(strata) - len(strata)
    even = all(1 <= size * test <= size - 1 for size in strata) and sizes.count(1) != 1
    for label in set(labels):
        count = labels.count(label)
        tested = sum(labels[i] == label for i in held_out)
        assert not room or count == 1 or 0 < tested < count
        assert not even or count == 1 or abs(tested - count * test) <= 1
    assert stratified_split(labels, test=test, seed=seed) == (train, held_out)


def test_the_total_is_exact_for_many_small_classes() -> None:
    labels = [i // 4 for i in range(40)]
    assert len(stratified_split(labels, test=0.4, seed=0)[1]) == 16


@pytest.mark.parametrize(
    ("labels", "test", "expected"),
    [
        ([*range(95), *[100] * 5], 0.2, 20),  # one-off combinations, and one class
        ([(i * i % 4, i * 7 % 13 % 4, i * 11 % 17 % 4) for i in range(100)], 0.2, 20),
        ([i // 2 for i in range(100)], 0.1, 10),  # fewer than there are classes
        ([i // 2 for i in range(100)], 0.9, 90),
        ([*"a" * 100, *range(3)], 0.01, 1),
        (list(range(10)), 0.3, 3),
        (["a", "b"], 0.1, 1),
        (["a", "b"], 0.9, 1),
    ],
)
def test_the_total_is_exact(labels: list[Hashable], test: float, expected: int) -> None:
    train, held_out = stratified_split(labels, test=test, seed=0)
    assert (len(train), len(held_out)) == (len(labels) - expected, expected)


def test_a_single_image_of_a_class_is_for_training() -> None:
    labels = ["rare", *"a" * 10, *"b" * 10]
    assert all(0 in stratified_split(labels, test=0.5, seed=s)[0] for s in range(5))


def test_larger_classes_are_in_both_parts_if_not_all_can_be() -> None:
    labels = [*"a" * 2, *"b" * 9, *"c" * 2, *"d" * 9]
    _, held_out = stratified_split(labels, test=0.1, seed=0)
    assert sorted(labels[i] for i in held_out) == ["b", "d"]


def test_the_split_depends_on_the_seed() -> None:
    labels = ["a", "b"] * 50
    splits = {tuple(stratified_split(labels, test=0.2, seed=s)[1]) for s in range(5)}
    assert len(splits) == 5


def test_the_split_does_not_depend_on_the_hash_seed() -> None:
    splits = [
        stratified_split([Salted(name, salt) for name in ("x", "y", "zz") * 9], test=0.3, seed=3)
        for salt in range(5)
    ]
    assert all(split == splits[0] for split in splits)


def test_impossible_splits_are_refused() -> None:
    with pytest.raises(DataError, match=r"test=1\.0"):
        stratified_split(["a", "a"], test=1.0, seed=0)
    with pytest.raises(DataError, match="1 images: there is nothing to split"):
        stratified_split(["a"], test=0.5, seed=0)


@given(
    groups=st.lists(st.integers(0, 30), min_size=20, max_size=80),
    seed=st.integers(0, 1000),
    parts=st.integers(2, 5),
)
def test_no_group_is_divided_and_no_part_is_empty(groups: list[int], seed: int, parts: int) -> None:
    labels = ["ab"[group % 2] for group in groups]
    if len(set(groups)) < parts:
        with pytest.raises(DataError, match="cannot be divided into"):
            grouped_split(labels, groups, shares=[1 / parts] * parts, seed=seed)
        return
    placed = grouped_split(labels, groups, shares=[1 / parts] * parts, seed=seed)
    assert set(placed) == set(range(parts))
    assert len({(group, part) for group, part in zip(groups, placed, strict=True)}) == len(
        set(groups)
    )
    assert placed == grouped_split(labels, groups, shares=[1 / parts] * parts, seed=seed)


def test_groups_are_placed_so_that_classes_keep_their_shares() -> None:
    groups = [i // 3 for i in range(120)]  # 40 patients of three images each
    labels = ["rare" if group % 8 == 0 else "usual" for group in groups]
    for seed in range(5):
        placed = grouped_split(labels, groups, shares=[0.6, 0.2, 0.2], seed=seed)
        assert [placed.count(part) for part in range(3)] == [72, 24, 24]
        rare = [part for part, label in zip(placed, labels, strict=True) if label == "rare"]
        assert [rare.count(part) for part in range(3)] == [9, 3, 3]
    assert (
        len({tuple(grouped_split(labels, groups, shares=[0.5, 0.5], seed=s)) for s in range(5)}) > 1
    )
