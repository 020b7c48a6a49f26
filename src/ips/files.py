"""Write files atomically; list, fingerprint and compare files; split their addresses."""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Self
from uuid import uuid4

from ips.remote import address, version

# The disk, the quota or the largest file that is allowed is full.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

# Larger files are compared by this many blocks of their content.
_HASHED_WHOLE = 2**26
_BLOCKS, _BLOCK = 64, 2**16

_RUN = "model.safetensors"  # a folder with this file is a run, whose figures are no data
_DEEPEST = 6  # folders below another that are searched

_PART = re.compile(r"\..+\.[0-9a-f]{32}\.part")  # a temporary file of `atomic_path`


class Closable:
    """Base of objects that hold a file open: a ``with`` block closes them at its end."""

    def close(self) -> None:
        """Close the file; a later read opens it again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path``, renamed to it when the block succeeds.

    When the block fails, the temporary file is removed and ``path`` stays as it was. The data is
    synced to disk before the rename, so a power cut leaves the old file or the new one, whole.
    The error of a full disk names ``path``.
    """
    part = path.with_name(f".{path.name}.{uuid4().hex}.part")
    try:
        with naming_file(path, part):
            yield part
            with part.open("r+b") as stream:
                os.fsync(stream.fileno())
            part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    _sync_folder(path.parent)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of killed processes; no process may be writing to the folder."""
    for path in folder.glob(".*.part"):
        if _PART.fullmatch(path.name):
            path.unlink(missing_ok=True)


@contextmanager
def naming_file(path: Path, part: Path | None = None) -> Iterator[None]:
    """Let the error of a full disk inside the block name ``path``.

    The system names no file when a write fails, only when opening one does.

    Args:
        path: file that is written.
        part: its temporary file, whose name means nothing to a user.
    """
    try:
        yield
    except OSError as error:
        unnamed = error.filename is None and error.errno in _FULL
        if unnamed or (part is not None and str(error.filename) == str(part)):
            error.filename, error.filename2 = str(path), None
        raise


def _sync_folder(folder: Path) -> None:
    """Sync the names in a folder to disk, where the system can do that."""
    if os.name == "nt":  # Windows cannot open a folder
        return
    with suppress(OSError):  # not on every network file system
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """A binary stream whose content appears at ``path`` when the block succeeds, whole."""
    with atomic_path(path) as part, part.open("xb") as stream:
        yield stream


def write_text(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` as UTF-8, atomically."""
    with atomic_write(path) as stream:
        stream.write(text.encode("utf-8"))


def list_files(paths: Iterable[Path], *, accept: Callable[[Path], bool]) -> list[Path]:
    """The given files, and the accepted files directly inside the given folders, sorted by name.

    Hidden files inside a folder are skipped: temporary files and metadata of other programs.
    """
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            found.append(path)
            continue
        inside = (entry for entry in path.iterdir() if not entry.name.startswith("."))
        found += sorted(entry for entry in inside if accept(entry))
    return found


def folders_below(root: Path) -> Iterator[Path]:
    """A folder and all folders inside, without hidden ones and run folders."""
    seen: set[Path] = set()  # a link may lead to a folder above it
    for folder, inner, names in os.walk(root, followlinks=True):
        here = Path(folder)
        deep = len(here.relative_to(root).parts) > _DEEPEST
        if _RUN in names or deep or here.resolve() in seen:
            inner.clear()
            continue
        seen.add(here.resolve())
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        yield here


def joined(folder: Path, name: str) -> Path:
    """The file of this name in ``folder``, unless the name is an absolute path or an address."""
    return Path(name) if address(name) else folder / name


def absolute(path: Path) -> Path:
    """The absolute path without links; an address stays as it is."""
    return path if address(path) else path.resolve()


def exists(path: Path) -> bool:
    """Whether there is a file or folder; no error if none can have this name.

    A remote file counts as existing until it is read: to ask for each would take long.
    """
    try:
        return address(path) is not None or path.exists()
    except OSError:
        return False


def is_file(path: Path) -> bool:
    """Whether there is a file; no error if none can have this name. See `exists`."""
    return exists(path) and (address(path) is not None or path.is_file())


def split_address(path: str | Path) -> tuple[Path, str | None]:
    """Split ``file.h5::group`` into file and group; the group may be None.

    >>> split_address("train.h5::normal_001")[1]
    'normal_001'
    """
    file, _, group = str(path).partition("::")
    return Path(file), group or None


def fingerprint(path: Path, *facts: object) -> str:
    """A short cache key that changes when the file at ``path`` is modified or replaced.

    Args:
        path: file; its size and modification time count, its location does not.
        facts: whatever else the cached value depends on.
    """
    if (url := address(path)) is not None:
        state: tuple[object, ...] = (version(url),)
    else:
        stat = path.stat()
        state = stat.st_size, stat.st_mtime_ns
    text = "\n".join(map(str, (*state, *facts)))
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:24]


def equal_files(paths: Sequence[Path]) -> list[list[int]]:
    """Groups of numbers of ``paths`` whose files have the same content.

    Only files of equal size are read; of a file larger than 64 MB, blocks from all over it. Files
    that cannot be read, and empty ones, equal no other.
    """
    sizes: dict[int, list[int]] = {}
    for number, path in enumerate(paths):
        with suppress(OSError):
            sizes.setdefault(path.stat().st_size, []).append(number)
    contents: dict[bytes, list[int]] = {}
    for size, numbers in sizes.items():
        for number in numbers if size and len(numbers) > 1 else ():
            with suppress(OSError):
                contents.setdefault(_content(paths[number], size), []).append(number)
    return [numbers for numbers in contents.values() if len(numbers) > 1]


def _content(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        if size <= _HASHED_WHOLE:
            return hashlib.file_digest(file, "sha256").digest()
        digest = hashlib.sha256(str(size).encode())
        for block in range(_BLOCKS):
            file.seek((size - _BLOCK) * block // (_BLOCKS - 1))
            digest.update(file.read(_BLOCK))
        return digest.digest()
