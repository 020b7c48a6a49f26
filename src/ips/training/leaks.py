"""Images of one scene in two splits: equal files, and names that suggest it."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from pathlib import Path

from ips.config import TableConfig
from ips.data.split import Split
from ips.data.table import NO_GROUP
from ips.errors import shown
from ips.files import equal_files, split_address
from ips.training.data import Data

# Endings of names that copies and cut-outs of an image get.
_COPY = re.compile(
    r"[ _.-]*(copy|augmented|aug|rotated|rot|flipped|flip|crop|tile|patch)[ _-]?\d*[hv]?$"
)
_NUMBER = re.compile(r"[ _.-]*\(\d+\)$")  # of a copy, or of one of many photographs
# The counter at the end of a name such as patient07_2 or case-12-b.
_COUNTER = re.compile(r"[ _.-]+(\d+|[a-z]|left|right)$")


def leaks(data: Data, config: TableConfig) -> list[str]:
    """A sentence for equal files in two splits, and for names that suggest the same scene."""
    splits = [split for _, _, split in data.table]
    names = [name for name, _, _ in data.table]
    found = []
    for same in equal_images(data.files):
        if len({splits[i] for i in same}) > 1:
            found.append(f"{_places(same, names, splits)} have the same content: keep one")
    if len(found) > 3:
        found = [*found[:3], f"{len(found) - 3} more files have a copy in another split"]
    grouped = config.group == NO_GROUP or any(group for _, group, _ in data.table)
    if not grouped and (related := divided_names(names, splits)):
        found.append(related)
    return found


def equal_images(paths: Sequence[Path]) -> list[list[int]]:
    """Numbers of the files that have the same content; slides inside one file are left out."""
    whole = [i for i, path in enumerate(paths) if split_address(path)[1] is None]
    return [[whole[i] for i in same] for same in equal_files([paths[i] for i in whole])]


def divided_names(names: Sequence[str], splits: Sequence[Split]) -> str | None:
    """A sentence if names suggest that images of one scene or patient are in two splits."""
    for groups in (_copies(names), _series(names)):
        divided = [same for same in groups if len({splits[i] for i in same}) > 1]
        if divided:
            first, more = divided[0][0], ""
            if len(divided) > 1:
                more = f" ({len(divided)} such groups in all)"
            other = next(i for i in divided[0] if splits[i] != splits[first])
            return (
                f"{_places([first, other], names, splits)} seem to belong together by their "
                f"names{more}, so scores may be too good: add a column `group` to the table, or "
                "set data.group=none if they do not"
            )
    return None


def _copies(names: Sequence[str]) -> list[list[int]]:
    """Names such as a.png and a_copy.png, or b_crop1.png and b_crop2.png."""
    groups: dict[str, list[int]] = {}
    changed: set[str] = set()
    keys = [name.rpartition(".")[0].lower() for name in names]
    known = set(keys)
    for i, key in enumerate(keys):
        while (shorter := _original(key, known)) is not None:
            key = shorter
            changed.add(key)
        groups.setdefault(key, []).append(i)
    return [same for key, same in groups.items() if key in changed and len(same) > 1]


def _original(key: str, known: Set[str]) -> str | None:
    """The name of the image that a copy or cut-out may come from; None if it is not one.

    A number in brackets is that of a copy only beside the original: "photo (1)" to "photo (120)"
    are different photographs.
    """
    shorter = _COPY.sub("", key)
    if (numbered := _NUMBER.sub("", key)) != key and (numbered in known or _COPY.search(numbered)):
        shorter = numbered
    return shorter if shorter != key and shorter.rpartition("/")[2] else None


def _series(names: Sequence[str]) -> list[list[int]]:
    """Names such as p07_1.png and p07_2.png, if there are several such series."""
    groups: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        key, counters = _COUNTER.subn("", name.rpartition(".")[0].lower())
        if counters and any(c.isdigit() for c in key.rpartition("/")[2]):
            groups.setdefault(key, []).append(i)
    series = [same for same in groups.values() if len(same) > 1]
    return series if len(series) > 2 else []


def _places(numbers: Sequence[int], names: Sequence[str], splits: Sequence[Split]) -> str:
    texts = [f"{shown(names[i], quote=False)} ({splits[i]})" for i in numbers[:3]]
    more = f" and {len(numbers) - 3} more" if len(numbers) > 3 else ""
    return " and ".join(texts) + more
