"""A family of files: valid files, the reader of each, and what may go unnoticed in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from fuzz.corrupt import damage

Edit = Callable[[bytes, Random], bytes]


@dataclass(frozen=True)
class Reading:
    """The content of a file: its geometry (sizes, names, counts) and its values (pixels, numbers).

    Both are compared by their ``repr``, so that NaN equals NaN.
    """

    geometry: Any
    values: Any = None

    def same_geometry(self, other: Reading) -> bool:
        return repr(self.geometry) == repr(other.geometry)

    def same_values(self, other: Reading) -> bool:
        return repr(self.values) == repr(other.values)


@dataclass(frozen=True)
class Seed:
    """A valid file.

    Args:
        name: name of the seed within its family.
        file: path of the file in its folder.
        data: content of the file.
        read: reads the file as a command of `ips` would, and returns its content.
        beside: other files that the reader needs, by their path in the folder.
        names: what an error may name instead of the file, such as a setting in it.
    """

    name: str
    file: str
    data: bytes
    read: Callable[[Path], Reading]
    beside: Mapping[str, bytes] = field(default_factory=dict)
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Family:
    """Files of one kind.

    Args:
        name: name of the family.
        seeds: valid files.
        edit: changes a file and keeps its format intact, so that a deeper layer reads the change.
        values: why damage can change values without an error; empty if it never may.
        geometry: why damage can change the geometry without an error; empty if it never may.
        edits: why an edited file can be read as another valid file; empty if it never may.
    """

    name: str
    seeds: tuple[Seed, ...]
    edit: Edit | None = None
    values: str = ""
    geometry: str = ""
    edits: str = "an edit can give another valid file"

    def seed(self, name: str) -> Seed:
        return next(seed for seed in self.seeds if seed.name == name)

    def variant(self, number: int, *, seed: int) -> Variant:
        """The corrupted file of this number; the same for the same seed of the random numbers."""
        random = Random(f"{seed}/{self.name}/{number}")
        valid = random.choice(self.seeds)
        data, edited = valid.data, self.edit is not None and random.random() < 0.5
        if self.edit is not None and edited:
            with suppress(Exception):  # an earlier edit may not leave room for another
                for _ in range(random.choice((1, 1, 1, 2, 3))):
                    data = self.edit(data, random)
        else:
            data = damage(data, random, others=[other.data for other in self.seeds])
        return Variant(valid, data, edited)


@dataclass(frozen=True)
class Variant:
    """A corrupted file; ``edited`` if its format was kept intact, instead of damaged bytes."""

    seed: Seed
    data: bytes
    edited: bool
