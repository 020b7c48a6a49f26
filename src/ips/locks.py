"""A lock on a folder, so that only one process writes to it at a time.

The lock is held by the system on the file ``.lock`` inside the folder, which names the process and
its host. It ends with the process, however that ends, and it does not keep anyone from reading.
`fcntl.lockf` also works on network file systems that support locks. Where there is no support, the
folder is used without a lock.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ips.errors import FolderInUseError

LOCK = ".lock"
"""Name of the lock file."""

# Locks of this process, by folder, with the process and the thread that took them. The system does
# not tell threads of a process apart, and a forked process does not inherit the lock.
_held: dict[Path, tuple[int, int]] = {}
_guard = threading.Lock()
_waiting = threading.Lock()
_PAUSE = 0.05  # seconds between two attempts of `wait_for_lock`

_TRIES = 100  # another process may remove the file or the folder while we open it
_NO_SUPPORT = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL)
_FAR = 1 << 30  # Windows forbids to read what is locked, so a byte far behind the text is


@contextmanager
def lock_folder(
    folder: Path, *, option: str, shard: tuple[int, int] | None = None
) -> Iterator[None]:
    """Keep other processes from locking ``folder`` during the block; blocks may be nested.

    A missing folder is created, and removed again if the block leaves it empty. Processes with
    different shares of the same work may lock a folder at the same time.

    Args:
        folder: folder to write to.
        option: how the user gives the folder, such as ``--run``, for the error message.
        shard: number of the share of this process, and the number of shares.
    """
    name = LOCK if shard is None else f"{LOCK}-{shard[0]}-of-{shard[1]}"
    key, me = folder.resolve() / name, (os.getpid(), threading.get_ident())
    with _guard:
        holder = _held.get(key)
        if holder is not None and holder[0] == me[0] and holder[1] != me[1]:
            raise _in_use(folder, _this_process(), option)
        _held[key] = me
    if holder == me:
        yield
        return
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        file = _acquire(folder, name, option)
        try:
            _check_others(folder, name, shard, option)
            yield
        finally:
            _release(file, folder / name)
            with suppress(OSError):  # not empty
                for path in missing:
                    path.rmdir()
    finally:
        with _guard:
            del _held[key]


@contextmanager
def wait_for_lock(path: Path) -> Iterator[None]:
    """Lock the file ``path`` for a short block; other processes and threads wait for it."""
    with _waiting, path.open("a+b") as file:
        while not _lock(file):
            time.sleep(_PAUSE)
        yield


def _check_others(folder: Path, name: str, shard: tuple[int, int] | None, option: str) -> None:
    """Raise if a process works on all, or on shares of another number of shares."""
    for path in folder.glob(f"{LOCK}*"):
        same = shard is not None and path.name.endswith(f"-of-{shard[1]}")
        if path.name == name or same:
            continue
        with suppress(FileNotFoundError), path.open("r+b") as file:
            if not _lock(file):
                raise _in_use(folder, _read_owner(file), option)


def _acquire(folder: Path, name: str, option: str) -> BinaryIO:
    path = folder / name
    for _ in range(_TRIES):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            file = path.open("a+b")
        except FileNotFoundError:  # the folder was removed in the meantime
            continue
        try:
            if not _lock(file):
                raise _in_use(folder, _read_owner(file), option)
            # The process that had the lock may have removed this file before it let go of it.
            if _is_at(file, path):
                with suppress(OSError):  # a full disk: the lock holds without the text
                    file.truncate(0)
                    file.write(_this_process().encode())
                    file.flush()
                return file
        except BaseException:
            file.close()
            raise
        file.close()
    raise _in_use(folder, "", option)


def _release(file: BinaryIO, path: Path) -> None:
    """Remove the lock file, then the lock; Windows cannot remove an open file."""
    with suppress(OSError):
        if sys.platform != "win32":
            path.unlink()
    with suppress(OSError):
        file.close()
    with suppress(OSError):
        if sys.platform == "win32":
            path.unlink()


def _lock(file: BinaryIO) -> bool:
    """Lock the file, unless another process has; True where locks are not supported."""
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(_FAR)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in _NO_SUPPORT
    return True


def _is_at(file: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _this_process() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


def _read_owner(file: BinaryIO) -> str:
    file.seek(0)
    text = file.read(300).decode(errors="replace")
    return "".join(letter for letter in text if letter.isprintable())


def _in_use(folder: Path, owner: str, option: str) -> FolderInUseError:
    text = f"{folder}: {owner or 'another process'} is writing to it"
    if (started := started_together()) is None:
        return FolderInUseError(f"{text}: wait for it to end, or give another {option}")
    number, count = started
    return FolderInUseError(
        f"{text}, and this is process {number} of {count} that torchrun or SLURM started: start "
        f"the command once, or give each process another {option}"
    )


def started_together() -> tuple[int, int] | None:
    """Number and count of the processes that torchrun or SLURM started, if there are several."""
    for number, count in (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS")):
        values = os.environ.get(number, ""), os.environ.get(count, "")
        if all(value.isdecimal() for value in values) and int(values[1]) > 1:
            return int(values[0]) + 1, int(values[1])
    return None
