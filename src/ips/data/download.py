"""Files from the network: resumed where they broke off, checked, and unpacked with care.

A file arrives as ``NAME.partial`` and gets its name when it is whole. Of http, the next attempt
asks for the bytes that are missing; a server that sends the whole file all the same is obeyed.
"""

from __future__ import annotations

import hashlib
import http.client
import re
import shutil
import socket
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path, PureWindowsPath
from typing import Any
from urllib.error import HTTPError, URLError

from ips.errors import DataError
from ips.files import atomic_write

Progress = Callable[[str, float, float | None], None]
"""Called with what is being done, how much of it is done, and of how much if that is known."""

_TIMEOUT = 30
_BLOCK = 1 << 18
_MB = 1e6

_HANDLERS = (
    urllib.request.ProxyHandler,
    urllib.request.UnknownHandler,
    urllib.request.HTTPHandler,
    urllib.request.HTTPSHandler,
    urllib.request.HTTPDefaultErrorHandler,
    urllib.request.HTTPRedirectHandler,
    urllib.request.HTTPErrorProcessor,
    urllib.request.FileHandler,
)


class _FetchError(Exception):
    """Why one address did not give the file."""


def fetch(
    path: Path, urls: Sequence[str], *, md5: str | None = None, progress: Progress | None = None
) -> None:
    """Download ``path`` from the first of ``urls`` that has it; a file that is there is kept.

    Args:
        path: where the file goes; its folder is made where it does not exist.
        urls: http, https or file addresses of the same file.
        md5: of the file, where it is known. Without, only the number of bytes that the server
            announces is checked, and that a ``.zip`` is a zip archive.
        progress: told of megabytes.
    """
    if path.exists():
        if md5 is not None and (found := _md5(path)) != md5:
            raise DataError(
                f"{path} is not the file that was published (md5 {found} instead of {md5}): "
                "delete it and download it again"
            )
        return
    for url in urls:
        check_url(url)
    failed: list[str] = []
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for url in urls:
            try:
                _fetch_from(url, path, md5=md5, progress=progress)
                return
            except _FetchError as error:
                failed.append(f"{url} ({error})")
    except OSError as error:
        raise DataError(
            f"{path} cannot be written ({(error.strerror or str(error)).lower()}): make room or "
            "choose another folder, and try again to go on where it stopped"
        ) from None
    raise DataError(
        f"{path} could not be downloaded from {', nor from '.join(failed)}: check the network and "
        "try again, or put the file there yourself"
    )


def check_url(url: str) -> None:
    """Refuse an address that is not http, https or file."""
    if not re.match(r"(https?|file)://", url):
        raise DataError(
            f"{url}: not an address that can be downloaded from: begin it with https://, http:// "
            "or, for a folder of this machine, file:///"
        )


def unpack(archive: Path, folder: Path, *, progress: Progress | None = None) -> None:
    """Unpack a zip archive into ``folder``; files that are there in their full size are kept.

    Each file's checksum in the archive is checked, and a file appears whole or not at all. An
    archive with a file that would land outside ``folder`` is refused before anything is written.
    """
    try:
        with zipfile.ZipFile(archive) as source:
            members = [member for member in source.infolist() if not member.is_dir()]
            for member in members:
                _check_inside(member.filename, archive)
            for number, member in enumerate(members, start=1):
                target = folder / member.filename
                if not (target.is_file() and target.stat().st_size == member.file_size):
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with source.open(member) as packed, atomic_write(target) as out:
                        shutil.copyfileobj(packed, out)
                if progress is not None:
                    progress(f"{archive.name}, files", number, len(members))
    # The last two are zipfile's words for a compression it does not know, and for a password.
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        reason = str(error) or "it ends too early"
        raise DataError(
            f"{archive} is damaged ({reason}): delete it and download it again"
        ) from None
    except OSError as error:
        raise DataError(
            f"{folder} cannot be written ({(error.strerror or str(error)).lower()}): make room or "
            "choose another folder, and try again"
        ) from None


def _check_inside(name: str, archive: Path) -> None:
    path = PureWindowsPath(name)  # it knows both kinds of slashes, and drives
    if path.drive or path.root or ".." in path.parts:
        raise DataError(
            f"{archive} holds {name}, which would land outside its folder: "
            "do not use it, download it from somewhere else"
        )


def _fetch_from(url: str, path: Path, *, md5: str | None, progress: Progress | None) -> None:
    part = path.with_name(f"{path.name}.partial")
    resumed = part.exists()
    _receive(url, part, what=f"{path.name}, MB", progress=progress)
    wrong = None
    if md5 is not None and (found := _md5(part)) != md5:
        wrong = f"md5 {found} instead of {md5}"
    elif path.suffix == ".zip" and not zipfile.is_zipfile(part):
        wrong = "not a zip archive"
    if wrong is None:
        part.replace(path)
        return
    part.unlink()
    if not resumed:
        raise _FetchError(wrong)
    # What was there may have been part of another file.
    _fetch_from(url, path, md5=md5, progress=progress)


def _receive(url: str, part: Path, *, what: str, progress: Progress | None) -> None:
    """Add to ``part`` what it lacks, or write it anew where only the whole file is to be had."""
    have = part.stat().st_size if part.exists() else 0
    try:
        response = _open(url, start=have)
    except HTTPError as error:
        with error:
            if error.code != 416 or not have:
                raise _FetchError(f"answer {error.code}, {error.reason}") from None
            length = error.headers.get("Content-Range", "").rpartition("/")[2]
        if length != str(have):  # longer than the file, so it is part of another
            part.unlink()
            _receive(url, part, what=what, progress=progress)
        return
    with response:
        if response.headers.get_content_type() == "text/html":
            raise _FetchError("a web page instead of the file")
        done = _start(response, have)
        length = response.headers.get("Content-Length", "")
        total = done + int(length) if length.isdecimal() else None
        with part.open("ab" if done else "wb") as file:
            while block := _read(response):
                file.write(block)
                done += len(block)
                if progress is not None:
                    progress(what, done / _MB, None if total is None else total / _MB)
    if total is not None and done != total:
        raise _FetchError(f"broke off after {done:,} of {total:,} bytes")


def _open(url: str, *, start: int) -> Any:
    opener = urllib.request.OpenerDirector()  # by hand: the default one also speaks ftp and data
    for handler in _HANDLERS:
        opener.add_handler(handler())
    request = urllib.request.Request(url, headers={"Range": f"bytes={start}-"} if start else {})
    try:
        return opener.open(request, timeout=_TIMEOUT)
    except HTTPError:
        raise
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _FetchError(_reason(error)) from None


def _start(response: Any, have: int) -> int:
    """At which byte of the file the answer begins."""
    if response.status != 206:  # the whole file; None for a file address
        return 0
    if not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
        raise _FetchError("another part of the file than was asked for")
    return have


def _read(response: Any) -> bytes:
    try:
        block: bytes = response.read(_BLOCK)
    except (OSError, http.client.HTTPException) as error:
        raise _FetchError(f"broke off: {_reason(error)}") from None
    return block


def _reason(error: BaseException) -> str:
    if isinstance(error, URLError) and isinstance(error.reason, BaseException):
        error = error.reason
    if isinstance(error, socket.gaierror):
        return "no such host, or no network"
    if isinstance(error, TimeoutError):
        return f"no answer in {_TIMEOUT} s"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
