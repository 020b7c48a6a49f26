"""The image and feature files below a folder, found by path, name or slide name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from ips.errors import DataError, IPSError
from ips.files import folders_below, is_file, joined, list_files, split_address
from ips.images import is_image
from ips.patches import open_features
from ips.patches.opening import FEATURE_SUFFIXES

_SHORT_NUMBER = re.compile(r"\d{,2}")  # rather a class than the name of a file


class FileIndex:
    """All images and feature files below a folder.

    Feature files of a folder are left out if the first one has no features, like CLAM's
    ``patches``, which has coordinates only.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def files(self) -> list[Path]:
        """All of them, sorted; the folder is searched at the first use."""
        return sorted(_walk(self.root))

    @cached_property
    def _by_name(self) -> dict[str, list[Path]]:
        """Files by their names, with and without ending."""
        found: dict[str, list[Path]] = {}
        for path in self.files:
            for name in {path.name, path.stem}:
                found.setdefault(name, []).append(path)
        return found

    def find(self, cell: str) -> Path | None:
        """The file that a cell of a table names: a path, a file name, or a name without ending.

        Of several files of one name, feature files come first.
        """
        if not cell:
            return None
        direct = joined(self.root, cell)
        if is_file(split_address(direct)[0]):
            return direct
        name = cell.replace("\\", "/").rpartition("/")[2]
        stem, _, ending = name.rpartition(".")
        found = [] if _SHORT_NUMBER.fullmatch(name) else self._by_name.get(name, [])
        if not found and ending.isalpha():
            found = self._by_name.get(stem, [])
        found = [path for path in found if is_features(path)] or found
        if len(found) > 1:
            raise DataError(
                f"{cell} could be {found[0]} or {found[1]}: write paths into the table, or give "
                "the folder with --images"
            )
        return found[0] if found else None


def is_features(path: Path) -> bool:
    """Whether a file is a feature file, by its ending."""
    return path.suffix.lower() in FEATURE_SUFFIXES


def _walk(root: Path) -> Iterator[Path]:
    for folder in folders_below(root):
        yield from list_files([folder], accept=is_image)
        features = list_files([folder], accept=is_features)
        if features and _has_features(features[0]):
            yield from features


def _has_features(path: Path) -> bool:
    try:
        open_features(path)
    except IPSError:
        return False
    return True
