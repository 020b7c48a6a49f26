"""Which rows of a table are for training, validation and test."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from torch import Tensor

from ips.config import TableConfig, TaskConfig
from ips.data.split import SPLIT_NUMBERS, Split, grouped_split, stratified_split
from ips.data.strata import classes_of, strata
from ips.data.table import Row
from ips.errors import DataError


def split_rows(
    rows: Sequence[Row],
    labels: Sequence[Mapping[str, Tensor]],
    data: TableConfig,
    tasks: Mapping[str, TaskConfig],
) -> dict[Split, list[int]]:
    """Numbers of the rows of each split: by the column ``split``, or at random."""
    numbers: dict[Split, list[int]] = {
        name: [i for i, row in enumerate(rows) if row.split == name] for name in SPLIT_NUMBERS
    }
    alike = strata(rows, labels, tasks)
    if not any(numbers.values()):
        every = list(range(len(rows)))
        numbers["train"], numbers["test"] = _hold_out(rows, alike, every, data.test, seed=data.seed)
    for name in ("train", "test"):
        if not numbers[name]:
            raise DataError(
                f"{data.csv}: no row has {name!r} in its column `split`: mark some, or remove the "
                "column for a random split"
            )
    if data.folds is not None:
        divided = sorted(numbers["train"] + numbers["validation"])
        return {**numbers, **_fold(rows, alike, divided, data)}
    if not data.validation:
        numbers["train"] = sorted(numbers["train"] + numbers["validation"])
        return {**numbers, "validation": []}
    train = numbers["train"]
    groups = {rows[i].group or i for i in train}
    if not numbers["validation"] and len(groups) > 1:
        rest, held_out = _hold_out(rows, alike, train, data.validation, seed=data.seed + 1)
        # no class is lost for training
        if classes_of(labels, rest, tasks) == classes_of(labels, train, tasks):
            numbers["train"], numbers["validation"] = rest, held_out
    return numbers


def _fold(
    rows: Sequence[Row], alike: Sequence[Hashable], numbers: Sequence[int], data: TableConfig
) -> dict[Split, list[int]]:
    """Divide the rows that are not for testing: one fold for validation, the others to train."""
    assert data.folds is not None
    parts = grouped_split(
        [alike[i] for i in numbers],
        [rows[i].group or i for i in numbers],
        shares=[1 / data.folds] * data.folds,
        seed=data.seed + 1 + data.repeat,
    )
    placed = list(zip(numbers, parts, strict=True))
    return {
        "train": [i for i, part in placed if part != data.fold - 1],
        "validation": [i for i, part in placed if part == data.fold - 1],
    }


def _hold_out(
    rows: Sequence[Row],
    alike: Sequence[Hashable],
    numbers: Sequence[int],
    share: float,
    *,
    seed: int,
) -> tuple[list[int], list[int]]:
    """Divide row numbers at random; each class is in both parts, and no group is."""
    some = [alike[i] for i in numbers]
    groups = [rows[i].group for i in numbers]
    if None in groups:
        train, held_out = stratified_split(some, test=share, seed=seed)
        return [numbers[i] for i in train], [numbers[i] for i in held_out]
    parts = grouped_split(some, groups, shares=[1 - share, share], seed=seed)
    placed = list(zip(numbers, parts, strict=True))
    return [i for i, part in placed if not part], [i for i, part in placed if part]
