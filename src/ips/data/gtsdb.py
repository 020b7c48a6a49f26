"""German Traffic Sign Detection Benchmark: which speed limit does a photograph show, if any?

Photographs of German roads by Houben et al. (IJCNN 2013), in a folder:

    00000.ppm to 00899.ppm    photographs, PPM as published, or copies as JPEG or PNG
    gt.txt                    as published, for each sign IMAGE.ppm;left;top;right;bottom;CLASS
    gtsdb.csv                 speed limit, kinds of signs and split of each photograph
    boxes.csv                 box, speed limit and kind of each sign

The first 600 photographs are the benchmark's training set, of which 120 are for validation here,
and the others are its test set. The two tables are what ``data: {kind: table}`` reads.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from PIL import Image as PILImage

from ips.data.download import Progress, check_url, fetch, unpack
from ips.data.output import copy_into, lock_output, locks_output
from ips.data.split import Split, stratified_split
from ips.data.table import write_csv
from ips.errors import DataError, because

LIMITS = ["none", "20", "30", "50", "60", "70", "80", "100", "120"]
"""Classes of the task ``limit``, in km/h. No photograph shows two different limits."""
KINDS = ["prohibitory", "mandatory", "danger", "other"]
"""Classes of the task ``kinds``: the categories of the benchmark."""

HOME = "https://sid.erda.dk/public/archives/ff17dc924eba88d5d01a807357d6614c"
"""Original address of the data set."""
ARCHIVE = "FullIJCNN2013.zip"  # has no published checksum; unpacking checks that of every file
BOXES = "gt.txt"
BOXES_MD5 = "b9a633fd8cd5a44f09ecf97d2fe9a9aa"

IMAGES, TRAINING, VALIDATION = 900, 600, 120  # photographs; those for validation are for training
SIZE = (1360, 800)
_SEED = 0  # of the choice of validation images

_AGAIN = "delete it and try again"
_SUFFIXES = (".ppm", ".jpg", ".jpeg", ".png")
# The archive also has a folder for each class, with crops whose names are those of photographs.
_CLASS_FOLDER = re.compile(r"\d\d")
_FOLDER = "FullIJCNN2013"

# Kind of each class of sign that is not "other", and the limits among them.
_KIND_OF = {
    **dict.fromkeys([0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 15, 16], "prohibitory"),
    **dict.fromkeys(range(33, 41), "mandatory"),
    **dict.fromkeys([11, *range(18, 32)], "danger"),
}
_LIMIT_OF = dict(zip([0, 1, 2, 3, 4, 5, 7, 8], LIMITS[1:], strict=True))


@dataclass(frozen=True)
class Sign:
    """One sign.

    Attributes:
        image: number of its photograph.
        box: left, top, right and bottom in pixels; right and bottom are just outside.
        limit: its speed limit, a name of `LIMITS`; None for another sign.
        kind: a name of `KINDS`.
    """

    image: int
    box: tuple[int, int, int, int]
    limit: str | None
    kind: str


@locks_output
def download_gtsdb(
    folder: Path, *, mirrors: Sequence[str] = (), progress: Progress | None = None
) -> None:
    """Download and unpack the missing photographs, and write the tables.

    Args:
        folder: output folder, created if missing. Its archive can be deleted afterwards.
        mirrors: addresses of folders with ``FullIJCNN2013.zip``, tried in this order before `HOME`.
        progress: callback that receives megabytes of the download, then files of the archive.
    """
    for mirror in mirrors:
        check_url(mirror)
    folder = Path(folder)
    if not _is_complete(folder):
        urls = [f"{home.rstrip('/')}/{ARCHIVE}" for home in (*mirrors, HOME)]
        fetch(folder / ARCHIVE, urls, progress=progress)
        unpack(folder / ARCHIVE, folder, place=_place, progress=progress)
    _write_tables(folder)


def copy_gtsdb(source: Path, folder: Path, *, progress: Progress | None = None) -> None:
    """Copy the missing photographs, and write the tables.

    Args:
        source: archive ``FullIJCNN2013.zip``, the folder that it unpacks to, or any other folder
            with the photographs and ``gt.txt``.
        folder: output folder, created if missing.
        progress: callback that receives files.
    """
    source, folder = Path(source), Path(folder)
    with lock_output(folder):
        if not _is_complete(folder):
            if source.is_file():
                unpack(source, folder, place=_place, progress=progress)
            else:
                _copy(source, folder, progress)
        _write_tables(folder)


def read_signs(folder: Path) -> list[Sign]:
    """All signs of a folder, in the order of its ``gt.txt``."""
    signs = []
    for line in _read_boxes(folder, remedy=_AGAIN).splitlines():
        name, *cells = line.split(";")
        left, top, right, bottom, number = map(int, cells)  # right and bottom are inside
        box = left, top, right + 1, bottom + 1
        kind = _KIND_OF.get(number, "other")
        signs.append(Sign(int(PurePosixPath(name).stem), box, _LIMIT_OF.get(number), kind))
    return signs


def _write_tables(folder: Path) -> None:
    """Write ``gtsdb.csv`` and ``boxes.csv``."""
    photographs = _check_photographs(folder, remedy=_AGAIN)
    signs = read_signs(folder)
    limits = ["none"] * IMAGES
    kinds: list[set[str]] = [set() for _ in range(IMAGES)]
    for sign in signs:
        kinds[sign.image].add(sign.kind)
        if sign.limit is not None:
            limits[sign.image] = sign.limit
    splits: list[Split] = ["train" if number < TRAINING else "test" for number in range(IMAGES)]
    share = VALIDATION / TRAINING
    for number in stratified_split(limits[:TRAINING], test=share, seed=_SEED)[1]:
        splits[number] = "validation"
    names = [path.name for path in photographs]
    listed = [";".join(kind for kind in KINDS if kind in shown) for shown in kinds]
    images = zip(names, limits, listed, splits, strict=True)
    boxes = [(names[sign.image], *sign.box, sign.limit or "", sign.kind) for sign in signs]
    sides = ("left", "top", "right", "bottom")
    try:
        write_csv(folder / "boxes.csv", ["filename", *sides, "limit", "kinds"], boxes)
        write_csv(folder / "gtsdb.csv", ["filename", "limit", "kinds", "split"], images)
    except OSError as error:
        reason = because(error, remedy="choose another folder")
        raise DataError(f"{folder} cannot be written {reason}") from None


def _is_complete(folder: Path) -> bool:
    """Whether no file is missing in a folder; another ``gt.txt`` than the published is an error."""
    if not (folder / BOXES).exists():
        return False
    _read_boxes(folder, remedy=_AGAIN)
    return len(_photographs(folder)) == IMAGES


def _photographs(folder: Path) -> list[Path]:
    """The photographs in the format that most of them have, so that formats are never mixed."""
    found = [
        [path for n in range(IMAGES) if (path := folder / f"{n:05d}{suffix}").is_file()]
        for suffix in _SUFFIXES
    ]
    return max(found, key=len)


def _check_photographs(folder: Path, *, remedy: str) -> list[Path]:
    """All photographs of a folder; one that is missing or has another size is an error."""
    photographs = _photographs(folder)
    if missing := set(range(IMAGES)) - {int(path.stem) for path in photographs}:
        suffix = photographs[0].suffix if photographs else _SUFFIXES[0]
        raise DataError(
            f"{folder}: {len(missing)} of {IMAGES} photographs are missing, such as "
            f"{min(missing):05d}{suffix}: get a complete copy of {ARCHIVE}"
        )
    for path in photographs:
        try:
            with PILImage.open(path) as picture:
                size = picture.size
        except Exception as error:  # decoders raise any type of exception on damaged files
            raise DataError(f"{path} cannot be read {because(error, remedy=remedy)}") from None
        if size != SIZE:
            found, expected = (f"{width:,} x {height:,} px" for width, height in (size, SIZE))
            raise DataError(f"{path} has {found}, but the boxes are for {expected}: {remedy}")
    return photographs


def _read_boxes(folder: Path, *, remedy: str) -> str:
    """The text of ``gt.txt``; its lines may end as those of Windows."""
    path = folder / BOXES
    try:
        content = path.read_bytes().replace(b"\r\n", b"\n")
    except OSError as error:
        raise DataError(f"{path} cannot be read {because(error, remedy=remedy)}") from None
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != BOXES_MD5:
        raise DataError(
            f"{path} is not the published file (md5 {found} instead of {BOXES_MD5}): {remedy}"
        )
    return content.decode("ascii")


def _copy(source: Path, folder: Path, progress: Progress | None) -> None:
    if not (source / BOXES).exists() and (source / _FOLDER / BOXES).exists():
        source = source / _FOLDER
    remedy = f"give another folder, or {ARCHIVE}"
    _read_boxes(source, remedy=remedy)
    files = [*_check_photographs(source, remedy=remedy), source / BOXES]
    for number, file in enumerate(files, start=1):
        if not (folder / file.name).exists():
            copy_into(folder, file)
        if progress is not None:
            progress("files", number, len(files))


def _place(name: str) -> str | None:
    """Where a file of the archive belongs; None for the crops and everything else."""
    path = PurePosixPath(name)
    if _CLASS_FOLDER.fullmatch(path.parent.name):
        return None
    photograph = re.fullmatch(r"\d{5}", path.stem) and path.suffix in _SUFFIXES
    return path.name if photograph or path.name == BOXES else None
