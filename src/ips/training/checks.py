"""What can be known about the data before training: constant labels, missing classes, bad files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import TypeVar

import torch
from rich.progress import Progress
from torch import Tensor

from ips.data.split import Split
from ips.errors import DataError, IPSError, listed
from ips.patches import PatchSource
from ips.tasks import Task
from ips.training.data import Data, DataSet
from ips.training.objects import object_problems

T = TypeVar("T")
R = TypeVar("R")

# Files that are opened at the same time: some decoders hold a whole image.
_THREADS = min(4, os.cpu_count() or 1)


def missing_classes(
    labels: Mapping[Split, Sequence[Mapping[str, Tensor]]], tasks: Mapping[str, Task]
) -> list[str]:
    """A sentence for each split that lacks a class.

    An error if nothing can be learnt from the training labels, as if all are equal.
    """
    warnings = []
    for name, task in tasks.items():
        for split, rows in labels.items():
            encoded = torch.stack([row[name] for row in rows])
            known = encoded[task.known(encoded)]
            only = task.nothing_to_learn(known) if len(known) else "no label"
            if split == "train" and only is not None:
                raise DataError(
                    f"task {name!r}: the {len(rows)} training images have {only}, so there is "
                    f"nothing to learn: check the column {name!r} and the split"
                )
            if absent := task.absent(known):
                warnings.append(
                    f"task {name!r}: no {split} image has the class {listed(absent, most=5)}: add "
                    "some, or change the split"
                )
    return warnings


def missing_labels(
    labels: Mapping[Split, Sequence[Mapping[str, Tensor]]], tasks: Mapping[str, Task]
) -> list[str]:
    """A sentence for each split and task in which images have no label."""
    notes = []
    for name, task in tasks.items():
        for split, rows in labels.items():
            missing = int((~task.known(torch.stack([row[name] for row in rows]))).sum())
            if missing:
                notes.append(
                    f"task {name!r}: {missing} of {len(rows)} {split} images have no label, and "
                    "count for the other tasks only"
                )
    return notes


def check_files(data: Data, progress: Progress) -> None:
    """Open the files of all splits, and raise one error for all that cannot be used."""
    items = list(_items(data))
    results = each_file(items, lambda item: _checked(*item), progress)
    if bad := [result for result in results if isinstance(result, IPSError)]:
        raise DataError(_summary(bad, len(items)))
    shapes: dict[tuple[int, ...], str] = {}
    for result in results:
        if not isinstance(result, IPSError):
            shapes.setdefault(result.shape, result.name)
    if len(shapes) > 1:
        (first, a), (second, b) = list(shapes.items())[:2]
        raise DataError(
            f"patches of {a} are {_size(first)} and those of {b} {_size(second)}: set "
            "patches.channels to rgb or grey, or convert the files so that all are alike"
        )


def _items(data: Data) -> Iterator[tuple[DataSet, int]]:
    for split in (data.train, data.validation, data.test):
        if split is not None:
            yield from ((split, number) for number in range(len(split)))


def _checked(data: DataSet, number: int) -> PatchSource:
    """Read a little of an image; raise if it, or an object on it, cannot be used."""
    source = usable(data[number][0])
    if problems := object_problems(data, number, source):
        raise problems[0]
    return source


def usable(source: PatchSource) -> PatchSource:
    """Read a little of a file and close it; raise if it cannot be used."""
    with source:
        source.check()
    return source


def each_file(
    items: Sequence[T], examine: Callable[[T], R], progress: Progress
) -> list[R | IPSError]:
    """Examine files in parallel, with a progress bar; an error is the result for that file."""

    def result(item: T) -> R | IPSError:
        try:
            return examine(item)
        except IPSError as error:
            return error

    results = []
    with nullcontext() if progress.live.is_started else progress:
        bar = progress.add_task("checking", total=len(items), note="files")
        with ThreadPoolExecutor(_THREADS) as pool:
            for one in pool.map(result, items):
                results.append(one)
                progress.advance(bar)
        progress.remove_task(bar)
    return results


def _summary(bad: list[IPSError], count: int) -> str:
    if len(bad) == 1:
        return str(bad[0])
    more = f"; and {len(bad) - 2} more" if len(bad) > 2 else ""
    return f"{len(bad)} of {count} files cannot be used: {bad[0]}; {bad[1]}{more}"


def _size(shape: tuple[int, ...]) -> str:
    if len(shape) == 1:
        return f"{shape[0]} features"
    channels, height, width = shape
    return f"{width} x {height} px with {channels} channel{'s' * (channels != 1)}"
