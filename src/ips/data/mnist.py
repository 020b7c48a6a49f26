"""Download the four files of MNIST, or copy them from a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ips.data.download import Progress, check_file, check_url, fetch
from ips.data.output import copy_into, lock_output, locks_output
from ips.errors import DataError, because

MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    "https://storage.googleapis.com/cvdf-datasets/mnist",
)
"""Addresses of the four files with ``.gz``, as used by torchvision and Keras."""

MD5 = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}
"""Names of the unpacked files with their checksums."""


@locks_output
def download_mnist(
    folder: Path, *, mirrors: Sequence[str] = (), progress: Progress | None = None
) -> None:
    """Download the missing files of MNIST: 60,000 training and 10,000 test digits.

    Args:
        folder: output folder, created if missing. Its files may be plain or end in ``.gz``.
        mirrors: addresses of folders with the four ``.gz`` files, tried in this order before
            `MIRRORS`.
        progress: callback that receives megabytes.
    """
    for mirror in mirrors:
        check_url(mirror)
    for name, md5 in MD5.items():
        urls = [f"{home.rstrip('/')}/{name}.gz" for home in (*mirrors, *MIRRORS)]
        path = _find(Path(folder), name) or Path(folder) / f"{name}.gz"
        fetch(path, urls, md5=md5, progress=progress)


def copy_mnist(source: Path, folder: Path) -> None:
    """Copy the missing files of MNIST from the folder ``source``, where they may end in ``.gz``."""
    source, folder = Path(source), Path(folder)
    with lock_output(folder):
        _copy_missing(source, folder)


def _copy_missing(source: Path, folder: Path) -> None:
    for name, md5 in MD5.items():
        existing = _find(folder, name)
        path = existing or _find(source, name)
        if path is None:
            raise DataError(f"{source / name} is missing, also with .gz: give the folder of MNIST")
        try:
            if problem := check_file(path, path.suffix, md5=md5):
                remedy = "delete it and try again" if existing else "give another folder"
                raise DataError(f"{path} is not the published file ({problem}): {remedy}")
        except OSError as error:
            reason = because(error, remedy="check the file")
            raise DataError(f"{path} cannot be read {reason}") from None
        if existing is None:
            copy_into(folder, path)


def _find(folder: Path, name: str) -> Path | None:
    paths = folder / name, folder / f"{name}.gz"
    return next((path for path in paths if path.is_file()), None)
