"""Lock the folder that a data set is written to, and copy files into it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from ips.errors import DataError, because
from ips.files import atomic_write
from ips.locks import lock_folder

_Options = ParamSpec("_Options")
_Folder = TypeVar("_Folder", bound=str | Path)
_Result = TypeVar("_Result")


@contextmanager
def lock_output(folder: str | Path) -> Iterator[None]:
    """Keep other processes from writing to ``folder``, which is created if missing."""
    with ExitStack() as stack:
        try:
            stack.enter_context(lock_folder(Path(folder), option="folder"))
        except OSError as error:
            reason = because(error, remedy="choose another folder")
            raise DataError(f"{folder} cannot be written {reason}") from error
        yield


def locks_output(
    write: Callable[Concatenate[_Folder, _Options], _Result],
) -> Callable[Concatenate[_Folder, _Options], _Result]:
    """Decorator of a function that writes to the folder in its first argument: lock it."""

    @wraps(write)
    def write_locked(
        folder: _Folder, /, *args: _Options.args, **options: _Options.kwargs
    ) -> _Result:
        with lock_output(folder):
            return write(folder, *args, **options)

    return write_locked


def copy_into(folder: Path, file: Path) -> None:
    """Copy a file into a folder, atomically."""
    target = folder / file.name
    try:
        with file.open("rb") as stored, atomic_write(target) as stream:
            shutil.copyfileobj(stored, stream)
    except OSError as error:
        reason = because(error, remedy="choose another folder")
        raise DataError(f"{target} cannot be written {reason}") from None
