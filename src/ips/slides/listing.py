"""List the slides among files and folders."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ips.errors import ConfigError
from ips.files import absolute, exists, list_files
from ips.images import is_image
from ips.remote import address, list_remote

OUT = "--out, or divide the slides with --shard"
"""What to do about a folder that another process is writing to."""


def list_slides(paths: Iterable[str | Path]) -> list[Path]:
    """The given slides and those directly inside the given folders, each once.

    Two slides with the same name are an error, because results are stored by name.
    """
    found: dict[Path, Path] = {}
    for path in map(Path, paths):
        if not exists(path):
            raise ConfigError(f"{path} does not exist: check the path")
        url = address(path)
        if url is not None and not is_image(path):
            files = [file for file in list_remote(url) if is_image(file)]
        else:
            files = list_files([path], accept=is_image)
        if not files:
            raise ConfigError(
                f"{path}: there is no slide in this folder, and subfolders are not searched: give "
                "the folder that holds the files"
            )
        for file in files:
            found.setdefault(absolute(file), file)
    names: dict[str, Path] = {}
    for file in found.values():
        if file.stem in names:
            raise ConfigError(
                f"{names[file.stem]} and {file} have the same name: write them to two folders"
            )
        names[file.stem] = file
    return list(found.values())
