"""Groups of images, such as those of a patient, as bags with one label each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from ips.data.regions import Region
from ips.data.table import Row, TableData
from ips.errors import DataError, listed
from ips.patches import JoinedPatches, PatchSource
from ips.tasks import Task


class Images(Protocol):
    """Images by number, each with its labels."""

    def __getitem__(self, index: int) -> tuple[PatchSource, dict[str, Tensor]]: ...


Bags = Mapping[str, Sequence[int]]
"""Numbers of the images of each bag, by its name."""


def bags_of(groups: Iterable[str]) -> dict[str, list[int]]:
    """The images of each group, in the order in which groups first appear.

    >>> bags_of(["p2", "p1", "p2"])
    {'p2': [0, 2], 'p1': [1]}
    """
    bags: dict[str, list[int]] = {}
    for number, group in enumerate(groups):
        bags.setdefault(group, []).append(number)
    return bags


def labels_of_groups(
    rows: Sequence[Row],
    labels: Sequence[Mapping[str, Tensor]],
    tasks: Mapping[str, Task],
    *,
    table: Path,
    bags: str,
) -> dict[str, dict[str, Tensor]]:
    """The labels of each group of a table; one without groups is an error.

    Args:
        labels: labels of each row.
        bags: the setting ``data.bags``.
    """
    groups = [row.group for row in rows if row.group is not None]
    if len(groups) < len(rows):
        raise DataError(
            f"{table}: data.bags={bags} needs a column of patients or other groups: add a column "
            "`patient`, or name it in data.group"
        )
    found = bags_of(groups)
    return dict(zip(found, joint_labels(found, labels, tasks, table=table), strict=True))


def joint_labels(
    bags: Bags,
    labels: Sequence[Mapping[str, Tensor]],
    tasks: Mapping[str, Task],
    *,
    table: Path,
) -> list[dict[str, Tensor]]:
    """The label of each bag: that of its images, which must agree as far as they have one."""
    joint: list[dict[str, Tensor]] = [{} for _ in bags]
    for name, task in tasks.items():
        divided = []
        for target, (bag, numbers) in zip(joint, bags.items(), strict=True):
            found = torch.stack([labels[i][name] for i in numbers])
            known = found[task.known(found)]
            if len(known) and not (known == known[0]).all():
                divided.append(bag)
            target[name] = known[0] if len(known) else found[0]
        if divided:
            raise DataError(
                f"{table}: {len(divided)} of {len(bags)} patients or groups have images with "
                f"different labels in column {name!r} ({listed(divided)}), but one prediction: "
                "correct the labels, or set data.bags=image"
            )
    return joint


class GroupedData:
    """Groups of the images of a table as bags.

    Args:
        images: the images.
        bags: which of them belong together.
        labels: labels of each bag.
    """

    def __init__(
        self, images: TableData, bags: Bags, *, labels: Sequence[dict[str, Tensor]]
    ) -> None:
        self.images, self.labels = images, labels
        self.names, self.numbers = list(bags), list(bags.values())

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> tuple[PatchSource, dict[str, Tensor]]:
        return joined(self.images, self.names[index], self.numbers[index]), self.labels[index]

    def objects(self, index: int, task: str) -> list[Region] | None:
        """The regions of all images of a bag; None if those of an image are unknown."""
        found: list[Region] = []
        for image, number in enumerate(self.numbers[index]):
            regions = self.images.objects(number, task)
            if regions is None:
                return None
            found += [replace(region, image=image) for region in regions]
        return found

    def object_problems(self, index: int, source: PatchSource) -> list[DataError]:
        """An error for each object that cannot be right on its image."""
        parts = {part.image: part for part in source.parts}
        return [
            problem
            for image, number in enumerate(self.numbers[index])
            for problem in self.images.size_problems(number, parts[image].size)
        ]


def joined(images: Images, name: str, numbers: Sequence[int]) -> PatchSource:
    """The patches of several images of a data set as one bag."""
    return JoinedPatches([images[number][0] for number in numbers], name=name)
