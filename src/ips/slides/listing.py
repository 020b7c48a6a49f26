"""List the slides among files and folders."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from ips.errors import ConfigError
from ips.files import list_files
from ips.images import is_image

SlideProgress = Callable[[str, int, int], None]
"""Callback that receives the name of a slide, the steps done on it and its number of steps."""


def list_slides(paths: Iterable[str | Path]) -> list[Path]:
    """The given slides and those directly inside the given folders, each once.

    Two slides with the same name are an error, because results are stored by name.
    """
    found: dict[Path, Path] = {}
    for path in map(Path, paths):
        if not path.exists():
            raise ConfigError(f"{path} does not exist: check the path")
        files = list_files([path], accept=is_image)
        if not files:
            raise ConfigError(
                f"{path}: there is no slide in this folder, and subfolders are not searched: give "
                "the folder that holds the files"
            )
        for file in files:
            found.setdefault(file.resolve(), file)
    names: dict[str, Path] = {}
    for file in found.values():
        if file.stem in names:
            raise ConfigError(
                f"{names[file.stem]} and {file} have the same name: write them to two folders"
            )
        names[file.stem] = file
    return list(found.values())
