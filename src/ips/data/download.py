"""Download files with resume and checks, and unpack archives safely.

A file arrives as ``NAME.partial`` and gets its name when it is complete. After an interruption the
next attempt requests only the missing bytes, if the server supports that.
"""

from __future__ import annotations

import errno
import gzip
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

from ips.errors import DataError, because
from ips.files import atomic_write

Progress = Callable[[str, float, float | None], None]
"""Callback that receives a description, the amount done, and the total amount if known."""

_TIMEOUT = 30
_BLOCK = 1 << 18
_MB = 1e6
_MAX_RATIO = 20  # unpacked bytes per byte of an archive of photographs


class _FetchError(Exception):
    """Why the download from one address failed."""


def fetch(
    path: Path, urls: Sequence[str], *, md5: str | None = None, progress: Progress | None = None
) -> None:
    """Download ``path`` from the first address that works; an existing file is kept.

    Args:
        path: target file; its folder is created if missing.
        urls: http, https or file addresses of the same file.
        md5: checksum of the file; of a ``.gz`` file, that of the unpacked content, because mirrors
            may compress it differently. Without a checksum, only the length that the server
            reports is checked, and that a ``.zip`` is a zip archive.
        progress: callback that receives megabytes.
    """
    if path.exists():
        if problem := check_file(path, path.suffix, md5=md5):
            raise DataError(
                f"{path} is not the published file ({problem}): delete it and download it again"
            )
        return
    for url in urls:
        check_url(url)
    failures: list[str] = []
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for url in urls:
            try:
                _fetch_from(url, path, md5=md5, progress=progress)
                return
            except _FetchError as error:
                failures.append(f"{url} ({error})")
    except OSError as error:
        reason = because(error, remedy="choose another folder")
        raise DataError(f"{path} cannot be written {reason}, and try again to resume") from None
    raise DataError(
        f"{path} could not be downloaded from {', nor from '.join(failures)}: check the network "
        "and try again, or put the file there yourself"
    )


def check_url(url: str) -> None:
    """Raise an error if the address is not http, https or file."""
    if not re.match(r"(https?|file)://", url):
        raise DataError(
            f"{url}: not an address that can be downloaded from: begin it with https://, http:// "
            "or, for a folder of this machine, file:///"
        )


def unpack(
    archive: Path,
    folder: Path,
    *,
    place: Callable[[str], str | None] = lambda name: name,
    progress: Progress | None = None,
) -> None:
    """Unpack a zip archive to ``folder``; existing files of the right size are kept.

    The checksums of all unpacked files are checked. An archive with a path outside of ``folder``,
    or that unpacks to far more than its own size, is refused before anything is written.

    Args:
        archive: zip archive.
        folder: output folder, created if missing.
        place: gives the path of a file in ``folder``, from that in the archive; None leaves it out.
        progress: callback that receives files.
    """
    try:
        with zipfile.ZipFile(archive) as source:
            members = [member for member in source.infolist() if not member.is_dir()]
            # No member can unpack to more than it declares.
            size, unpacked = archive.stat().st_size, sum(member.file_size for member in members)
            if unpacked > _MAX_RATIO * size + _BLOCK:
                raise DataError(
                    f"{archive} has {size:,} bytes and unpacks to {unpacked:,}, so it does not "
                    "hold pictures: do not use it, download it from somewhere else"
                )
            for member in members:
                path = PureWindowsPath(member.filename)  # understands drives and all slashes
                if path.drive or path.root or ".." in path.parts:
                    raise DataError(
                        f"{archive} holds {member.filename}, which would be written outside its "
                        "folder: do not use it, download it from somewhere else"
                    )
            places = [(member, place(member.filename)) for member in members]
            wanted = [(member, folder / path) for member, path in places if path is not None]
            for number, (member, target) in enumerate(wanted, start=1):
                if not (target.is_file() and target.stat().st_size == member.file_size):
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with source.open(member) as packed, atomic_write(target) as out:
                        shutil.copyfileobj(packed, out)
                if progress is not None:
                    progress(f"{archive.name}, files", number, len(wanted))
    except DataError:
        raise
    except OSError as error:
        # The decoder of bzip2 raises OSError, too, and so does a place before the archive's start.
        if error.errno not in (None, errno.EINVAL):
            reason = because(error, remedy="choose another folder, and try again")
            raise DataError(f"{archive} cannot be unpacked to {folder} {reason}") from None
        raise _damaged(archive, error) from None
    except Exception as error:  # damaged bytes can fail anywhere, such as in names as UTF-8
        raise _damaged(archive, error) from None


def _damaged(archive: Path, error: Exception) -> DataError:
    reason = because(error, remedy="delete it and download it again")
    return DataError(f"{archive} is damaged {reason}")


def _fetch_from(url: str, path: Path, *, md5: str | None, progress: Progress | None) -> None:
    part = path.with_name(f"{path.name}.partial")
    while True:
        resumed = part.exists()
        _receive(url, part, label=f"{path.name}, MB", progress=progress)
        problem = check_file(part, path.suffix, md5=md5)
        if problem is None and path.suffix == ".zip" and not zipfile.is_zipfile(part):
            problem = "not a zip archive"
        if problem is None:
            part.replace(path)
            return
        part.unlink()
        if not resumed:
            raise _FetchError(problem)
        # The partial file may have belonged to another file: start from scratch.


def _receive(url: str, part: Path, *, label: str, progress: Progress | None) -> None:
    """Append the missing bytes to ``part``, or rewrite it if the server sends the whole file."""
    have = part.stat().st_size if part.exists() else 0
    try:
        response = _request(url, start=have)
    except HTTPError as error:
        with error:
            if error.code != 416 or not have:
                raise _FetchError(f"answer {error.code}, {error.reason}") from None
            length = error.headers.get("Content-Range", "").rpartition("/")[2]
        if length != str(have):  # longer than the file, so it belongs to another one
            part.unlink()
            _receive(url, part, label=label, progress=progress)
        return
    with response:
        headers = response.headers
        if headers.get_content_type() == "text/html":
            raise _FetchError("a web page instead of the file")
        partial = response.status == 206
        if partial and not headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            raise _FetchError("another part of the file than requested")
        done = have if partial else 0
        length = headers.get("Content-Length", "")
        total = done + int(length) if length.isdecimal() else None
        with part.open("ab" if done else "wb") as file:
            while block := _read(response):
                file.write(block)
                done += len(block)
                if progress is not None:
                    progress(label, done / _MB, None if total is None else total / _MB)
    if total is not None and done != total:
        raise _FetchError(f"broke off after {done:,} of {total:,} bytes")


def _request(url: str, *, start: int) -> Any:
    request = urllib.request.Request(url, headers={"Range": f"bytes={start}-"} if start else {})
    try:
        return urllib.request.urlopen(request, timeout=_TIMEOUT)
    except HTTPError:
        raise
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _FetchError(_reason(error)) from None


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


def check_file(path: Path, suffix: str, *, md5: str | None) -> str | None:
    """Compare a file with a checksum; returns what is wrong with it, or None.

    Args:
        path: file to check, possibly under a temporary name.
        suffix: suffix of its real name; the checksum of ``.gz`` is that of the unpacked content.
        md5: expected checksum; None accepts every file.
    """
    if md5 is None:
        return None
    digest = hashlib.md5(usedforsecurity=False)
    try:
        with gzip.open(path) if suffix == ".gz" else path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        return "not a complete gzip file"
    found = digest.hexdigest()
    return None if found == md5 else f"md5 {found} instead of {md5}"
