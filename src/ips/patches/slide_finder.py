"""Find the slide that a feature file was extracted from, and the side of its patches."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

from ips.errors import ConfigError, DataError, PatchError, shown
from ips.files import folders_below, is_file, list_files, split_address
from ips.images import Image, downsample_for, is_image


@dataclass(frozen=True)
class SlideFinder:
    """Where the slides of feature files are.

    Attributes:
        folder: folder of slides that are called like the feature files, or as these name them;
            folders inside are searched, too.
        named: slide of a feature file by `address_key`, as a table names it: a file, or a name that
            is looked for in ``folder``.
        patch_size: side of a patch in pixels as it was read, for feature files that do not say how
            large a patch is.
        level: pyramid level that patches of ``patch_size`` were read from.
        mpp: micrometres per pixel that they were read at, instead of ``level``.
        white: see `ips.images.open_image`.
    """

    folder: Path | None = None
    named: Mapping[str, Path] = field(default_factory=dict)
    patch_size: int | None = None
    level: int | None = None
    mpp: float | None = None
    white: float | None = None

    def __post_init__(self) -> None:
        if self.patch_size is None and (self.level is not None or self.mpp is not None):
            raise ConfigError(
                "--level and --mpp say how patches of --patch-size were read: give that, too"
            )
        if self.level is not None and self.mpp is not None:
            raise ConfigError("--level and --mpp both give the resolution: give one of them")
        if self.folder is not None and not self.folder.is_dir():
            raise ConfigError(f"--slides {self.folder}: there is no such folder: check the path")

    def find(self, address: str | Path, stored: str | None) -> Path | None:
        """The slide of a feature file; None if there is none.

        A table comes first, then ``folder``, then the path that is stored in the file, then a slide
        of the same name beside the file.

        Args:
            address: feature file, or ``FILE::GROUP``.
            stored: path of the slide that the file names.
        """
        named = self.named.get(address_key(address))
        if named is not None and is_file(named):
            return named
        file, group = split_address(address)
        stem = Path(group or file.name).stem
        for name in (named, stored, stem):
            if name and (found := self._in_folder(str(name))) is not None:
                return found
        if stored and _is_local_image(Path(stored)):
            return Path(stored)
        if not file.parent.is_dir():
            return None
        beside = list_files([file.parent], accept=is_image)
        return _only([path for path in beside if path.stem == stem], address)

    def side(self, name: str, slide: Image | None, slide_mpp: float | None) -> float | None:
        """Side in full-resolution pixels of patches whose file does not say it; None if unknown.

        Args:
            name: name of the feature file in messages.
            slide: its slide, if there is one.
            slide_mpp: micrometres per full-resolution pixel, if known.
        """
        if self.patch_size is None:
            return None
        if slide is not None:
            return self.patch_size * downsample_for(slide, level=self.level, mpp=self.mpp)
        if self.level:
            raise PatchError(
                f"{name}: --level {self.level} needs its slide, which was not found: give --slides"
            )
        if self.mpp is None:
            return float(self.patch_size)
        if slide_mpp is None:
            raise PatchError(
                f"{name}: --mpp {self.mpp:g} needs the resolution of its slide, which was not "
                "found: give --slides"
            )
        return self.patch_size * self.mpp / slide_mpp

    def _in_folder(self, path: str) -> Path | None:
        """The slide in ``folder`` with the name of ``path``, with any ending or without one."""
        name = PurePosixPath(path.replace("\\", "/")).name  # may come from Windows
        stem = PurePosixPath(name).stem
        found = self._by_name.get(name) or self._by_stem.get(name) or self._by_stem.get(stem)
        return _only(found or [], name)

    @cached_property
    def _by_name(self) -> dict[str, list[Path]]:
        found: dict[str, list[Path]] = {}
        if self.folder is not None:
            for path in list_files(folders_below(self.folder), accept=is_image):
                found.setdefault(path.name, []).append(path)
        return found

    @cached_property
    def _by_stem(self) -> dict[str, list[Path]]:
        found: dict[str, list[Path]] = {}
        for paths in self._by_name.values():
            found.setdefault(paths[0].stem, []).extend(paths)
        return found


def address_key(address: str | Path) -> str:
    """A feature file or ``FILE::GROUP`` as a key that does not depend on the working folder."""
    file, group = split_address(address)
    return str(file.resolve()) if group is None else f"{file.resolve()}::{group}"


def _is_local_image(path: Path) -> bool:
    """Whether there is such an image; a feature file does not decide which servers are asked."""
    with suppress(OSError):  # no file can have this name
        return is_image(path)
    return False


def _only(found: list[Path], address: str | Path) -> Path | None:
    """The one slide among those found, None if there is none; several are an error."""
    if len(found) > 1:
        raise DataError(
            f"{shown(str(address), quote=False)}: {found[0]} and {found[1]} could both be its "
            "slide: give a folder with one of them as --slides, or a CSV with a column `slide`"
        )
    return found[0] if found else None
