"""Files at an address: ``https://``, ``http://``, ``s3://`` and ``gs://``, through fsspec.

A `Path` may hold an address. pathlib removes one of its slashes, which `address` puts back. A file
is read by ranges (`RemoteFile`), or as a whole from a copy in a folder of limited size
(`local_file`), where the copies that were used last stay.

Credentials come from the environment, as s3fs and gcsfs find them, and never from an address: it is
written to messages and feature files.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from typing import Any
from uuid import uuid4

from ips.errors import ConfigError, ImageError, because, require
from ips.locks import wait_for_lock

CACHE, LIMIT = "IPS_CACHE", "IPS_CACHE_GB"
"""Environment variables: the folder of local copies, and the most that it may hold."""

_DEFAULT_GB = 20.0
_PACKAGES = {"http": "aiohttp", "https": "aiohttp", "s3": "s3fs", "gs": "gcsfs"}
_ADDRESS = re.compile(rf"({'|'.join(_PACKAGES)}):/{{1,2}}([^/].*)")
_BLOCK, _BLOCKS = 2**18, 64  # bytes of a request, and requests that a file keeps in memory
_VERSIONS = ("ETag", "etag", "Last-Modified", "LastModified", "mtime", "md5Hash", "generation")
_ABANDONED = 86_400.0  # seconds after which a download is that of a dead process


def address(path: str | PurePath) -> str | None:
    """The address of a remote file, None for a path of this machine.

    >>> address(Path("https://example.org/a.svs"))
    'https://example.org/a.svs'
    >>> address("slides/a.svs") is None
    True
    """
    match = _ADDRESS.fullmatch(path.as_posix() if isinstance(path, PurePath) else path)
    return None if match is None else f"{match[1]}://{match[2]}"


def version(url: str) -> str:
    """A text that changes when the file at an address does."""
    with _asking(url):
        found = _file_system(url).info(url)
    return "\n".join(str(found.get(key)) for key in ("size", *_VERSIONS))


def list_remote(url: str) -> list[Path]:
    """The files of a folder in a bucket."""
    if url.startswith("http"):
        raise ConfigError(f"{url}: a folder cannot be listed over http: give its files")
    with _asking(url):
        names = _file_system(url).ls(url, detail=False)
    scheme = url.partition(":")[0]
    return [Path(f"{scheme}://{name}") for name in sorted(names)]


class RemoteFile(io.RawIOBase):
    """A file at an address, of which only the blocks that are read are transferred."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.name = url
        options = {"cache_type": "blockcache", "cache_options": {"maxblocks": _BLOCKS}}
        with _asking(url):
            self._file = _file_system(url).open(url, "rb", block_size=_BLOCK, **options)
            if not self._file.seekable():
                raise ValueError("no ranges")

    def readinto(self, buffer: Any) -> int:
        with _asking(self.name):
            data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


@contextmanager
def local_file(path: Path) -> Iterator[Path]:
    """A file of this machine: ``path`` itself, or a copy of the remote file at its address.

    The copy cannot be removed inside the block. Open it there: an open file can be read to its end.
    """
    url = address(path)
    if url is None:
        yield path
        return
    folder = _cache_folder()
    key = hashlib.sha256(f"{url}\n{version(url)}".encode()).hexdigest()[:32]
    copy = folder / key / path.name
    lock = folder / ".lock"
    with wait_for_lock(lock):
        if copy.is_file():
            os.utime(copy)
            yield copy
            return
    part = folder / f"{key}.{uuid4().hex}.part"
    try:
        with _asking(url):
            system = _file_system(url)
            size = int(system.info(url)["size"] or 0)
            with wait_for_lock(lock):
                _make_room(folder, size, url)
            system.get_file(url, str(part))
        with wait_for_lock(lock):
            _make_room(folder, 0, url)
            copy.parent.mkdir(exist_ok=True)
            part.replace(copy)
            os.utime(copy)
            yield copy
    finally:
        part.unlink(missing_ok=True)


def _cache_folder() -> Path:
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get(CACHE) or Path(caches) / "ips")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _make_room(folder: Path, size: int, url: str) -> None:
    """Remove the copies that were not used for longest, until ``size`` bytes more are allowed."""
    text = os.environ.get(LIMIT) or str(_DEFAULT_GB)
    try:
        limit = float(text) * 1e9
    except ValueError:
        raise ConfigError(f"{LIMIT}={text}: expected a number of gigabytes") from None
    if size > limit:
        raise ConfigError(
            f"{url}: has {size / 1e9:.2f} GB, and the folder of copies is limited to {text} GB: "
            f"set the environment variable {LIMIT} to more"
        )
    now, copies, total = time.time(), [], size
    for file in folder.glob("*/*"):
        with suppress(FileNotFoundError):
            stat = file.stat()
            copies.append((stat.st_mtime, stat.st_size, file))
            total += stat.st_size
    for part in folder.glob("*.part"):
        with suppress(FileNotFoundError):
            if now - part.stat().st_mtime > _ABANDONED:
                part.unlink()
            else:
                total += part.stat().st_size
    for _, bytes_, file in sorted(copies):
        if total <= limit:
            break
        shutil.rmtree(file.parent, ignore_errors=True)
        total -= bytes_


def _file_system(url: str) -> Any:
    scheme, _, rest = url.partition("://")
    if "@" in rest.partition("/")[0] or "?" in rest:
        shown = f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"
        raise ConfigError(
            f"{shown}: the address has a password or a query, which would be written to files: "
            "use s3:// or gs:// with the credentials of your environment, or copy the file"
        )
    require("fsspec", _PACKAGES[scheme])
    import fsspec

    return fsspec.filesystem(scheme, use_listings_cache=False)


@contextmanager
def _asking(url: str) -> Iterator[None]:
    """Turn the errors of a server into one sentence."""
    try:
        yield
    except ImageError:
        raise
    except (OSError, ValueError, RuntimeError) as error:
        raise ImageError(f"{url} {_reason(url, error)}") from error
    except Exception as error:  # aiohttp, botocore and gcsfs have trees of their own
        if not hasattr(error, "status") and not type(error).__module__.startswith(
            ("aiohttp", "botocore", "gcsfs", "google")
        ):
            raise
        raise ImageError(f"{url} {_reason(url, error)}") from error


def _reason(url: str, error: BaseException) -> str:
    """What is wrong, and what to do."""
    causes = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None:
        causes.append(cause)
    status = next((cause.status for cause in causes if hasattr(cause, "status")), None)
    host = url.partition("://")[2].partition("/")[0]
    kinds = {kind.__name__ for cause in causes for kind in type(cause).__mro__}
    if status in (401, 403) or "PermissionError" in kinds or "NoCredentialsError" in kinds:
        return "cannot be read (access denied): check your rights and credentials"
    if status is not None and status not in (404, 410):
        return f"cannot be read ({host} answers {status}): try again later"
    if status is None and kinds & {"ClientConnectionError", "ConnectionError", "TimeoutError"}:
        return f"cannot be read (no connection to {host}): check the address and the network"
    if "EndpointConnectionError" in kinds:
        return f"cannot be read (no connection to {host}): check the address and the network"
    if "FileNotFoundError" in kinds:
        return "does not exist: check the address"
    if isinstance(error, ValueError) and "range" in str(error):
        return (
            f"cannot be read in parts ({host} does not support range requests): copy the file, or "
            "ask for a server that does"
        )
    return f"cannot be read {because(error, remedy='try again later')}"
