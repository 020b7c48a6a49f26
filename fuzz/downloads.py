"""Data sets: archives of downloads, MNIST, megapixel MNIST of ours and of the paper's authors."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fuzz.corrupt import damage
from fuzz.family import Family, Reading, Seed
from fuzz.formats import edit_npy, edit_zip, either, in_gzip, in_zip
from fuzz.images import digest
from fuzz.tables import TEXT
from fuzz.text import edit_text
from ips.data.download import unpack
from ips.data.synthetic.digits import load_digits
from ips.data.synthetic.megapixel_mnist_authors import AuthorsMegapixelMNIST
from ips.data.synthetic.megapixel_mnist_files import (
    SavedMegapixelMNIST,
    has_validation,
    save_megapixel_mnist,
)
from ips.training.data import DataSet

_PARTS = {"train": "train", "t10k": "test"}
_SIDE = 120
_MAX_PATCHES = 10_000
_PLAIN = "its bytes are the numbers, without a checksum"


def _read_archive(path: Path) -> Reading:
    """Unpack an archive as the commands that download data do."""
    target = path.parent / "unpacked"
    unpack(path, target)
    files = sorted(file for file in target.rglob("*") if file.is_file())
    names = [str(file.relative_to(target)) for file in files]
    return Reading(names, [file.read_bytes()[:10_000] for file in files])


def _read_mnist(path: Path) -> Reading:
    digits = load_digits(path.parent)
    return Reading((digits.images.shape, len(digits.train), len(digits.test)), digits.fingerprint())


def _read_saved(path: Path) -> Reading:
    """Read a saved data set as training does."""
    has_validation(path.parent)
    return _read_items(SavedMegapixelMNIST(path.parent, split="train"))


def _read_authors(path: Path) -> Reading:
    """Read a data set of the paper's authors as training does."""
    data = AuthorsMegapixelMNIST(path.parent, split="train", patch_size=20, stride=20)
    return _read_items(data)


def _read_items(data: DataSet) -> Reading:
    """The first images of a data set; only the numbers of patches of very large ones."""
    items = [data[index] for index in range(min(len(data), 4))]
    counts = [len(source) for source, _ in items]
    labels = [{k: v.tolist() for k, v in item.items()} for _, item in items]
    if max(counts) > _MAX_PATCHES:
        return Reading((len(data), counts), labels)
    pixels = [digest(source.read(range(len(source))).numpy()) for source, _ in items]
    return Reading((len(data), counts), (pixels, labels))


def _zip() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, kind in (("Set1/a.txt", zipfile.ZIP_DEFLATED), ("b.bin", zipfile.ZIP_STORED)):
            info = zipfile.ZipInfo(name)
            archive.writestr(info, bytes(range(200)) * 2, compress_type=kind)
    return out.getvalue()


def _idx(numbers: npt.NDArray[np.uint8]) -> bytes:
    header = struct.pack(f">{1 + numbers.ndim}I", 0x0800 + numbers.ndim, *numbers.shape)
    return header + numbers.tobytes()


@cache
def _mnist() -> dict[str, bytes]:
    rng = np.random.default_rng(0)
    files: dict[str, bytes] = {}
    for stem in _PARTS:
        pictures = rng.integers(0, 256, (3, 28, 28)) * (rng.random((3, 28, 28)) < 0.2)
        files[f"{stem}-images-idx3-ubyte"] = _idx(pictures.astype(np.uint8))
        files[f"{stem}-labels-idx1-ubyte"] = _idx(np.arange(3, dtype=np.uint8))
    return files


def _mnist_seeds(*, packed: bool) -> tuple[Seed, ...]:
    files = _mnist()
    if packed:
        files = {f"{name}.gz": gzip.compress(data, mtime=0) for name, data in files.items()}
    names = [name for name in files if name.startswith("train")]
    return tuple(Seed(name.split("-")[1], name, files[name], _read_mnist, files) for name in names)


def _saved() -> tuple[Seed, ...]:
    """The settings and the arrays of a data set of ours."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        folder = Path(name)
        for file, data in (_many_digits()).items():
            (folder / file).write_bytes(data)
        out = folder / "set"
        save_megapixel_mnist(out, side=_SIDE, train=2, test=1, noise=2, digits=folder)
        files = {path.name: path.read_bytes() for path in out.iterdir()}
    return tuple(
        Seed(name.partition(".")[0], name, files[name], _read_saved, files, ("train.npz",))
        for name in ("dataset.json", "train.npz")
    )


def _many_digits() -> dict[str, bytes]:
    """MNIST's files with several digits of each class, of a few pixels."""
    pictures = np.zeros((40, 28, 28), np.uint8)
    pictures[np.arange(40), np.arange(40) % 28, 10] = 200
    labels = (np.arange(40) % 10).astype(np.uint8)
    return {
        f"{stem}-{kind}": _idx(array)
        for stem in _PARTS
        for kind, array in (("images-idx3-ubyte", pictures), ("labels-idx1-ubyte", labels))
    }


def _authors() -> dict[str, bytes]:
    rng = np.random.default_rng(0)
    items: list[dict[str, Any]] = []
    for _ in range(2):
        places = np.sort(rng.choice(40 * 60, 30, replace=False))
        digits = rng.integers(10, size=5).astype(np.uint8)
        items.append(
            {
                "input": ((places,), rng.integers(1, 256, 30).astype(np.float32) / 255),
                "majority": np.int64(digits[0]),
                "max": np.max(digits),
                "top": digits[1],
                "multi": np.eye(10)[digits].sum(0).clip(0, 1),
            }
        )
    out = io.BytesIO()
    np.save(out, np.array(items, dtype=object))
    parameters = {"n_train": 2, "n_test": 2, "width": 60, "height": 40}
    return {"parameters.json": json.dumps(parameters).encode(), "train.npy": out.getvalue()}


def families() -> list[Family]:
    """All families of data sets."""
    authors = _authors()
    settings, arrays = _saved()
    return [
        Family(
            "archive",
            (Seed("zip", "download.zip", _zip(), _read_archive),),
            edit=edit_zip,
            geometry="its directory has no checksum; the data set names the file that is missing",
        ),
        Family("mnist", _mnist_seeds(packed=False), edit=damage, values=_PLAIN, geometry=_PLAIN),
        Family("mnist-gz", _mnist_seeds(packed=True), edit=in_gzip(damage)),
        Family("megapixel-mnist-settings", (settings,), *(edit_text, TEXT, TEXT)),
        Family(
            "megapixel-mnist-arrays",
            (arrays,),
            edit=either(edit_zip, in_zip(damage), in_zip(edit_npy)),
        ),
        Family(
            "authors-parameters",
            (Seed("json", "parameters.json", authors["parameters.json"], _read_authors, authors),),
            *(edit_text, TEXT, TEXT),
        ),
        Family(
            "authors-arrays",
            (Seed("npy", "train.npy", authors["train.npy"], _read_authors, authors),),
            *(edit_npy, _PLAIN, _PLAIN),
        ),
    ]
