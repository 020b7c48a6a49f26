from __future__ import annotations

import gzip
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ips.data.synthetic.digits import Digits, load_arrays, load_digits
from ips.errors import DataError


@pytest.fixture(scope="module")
def embedded() -> Digits:
    return load_digits()


def test_embedded_digits_are_split_into_disjoint_balanced_parts(embedded: Digits) -> None:
    assert embedded.images.shape == (5000, 28, 28)
    assert embedded.images.dtype == np.uint8
    assert embedded.images.max() == 255
    assert embedded.labels.dtype == np.int64
    assert np.array_equal(np.sort(np.r_[embedded.train, embedded.test]), np.arange(5000))
    assert np.bincount(embedded.labels[embedded.train]).tolist() == [400] * 10
    assert np.bincount(embedded.labels[embedded.test]).tolist() == [100] * 10
    train = {image.tobytes() for image in embedded.images[embedded.train]}
    assert not any(image.tobytes() in train for image in embedded.images[embedded.test])


def test_the_second_load_uses_the_cache(
    embedded: Digits, digit_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (digit_cache / "mnist-5000.npz").exists()
    monkeypatch.setattr("ips.data.synthetic.digits._parse", lambda: pytest.fail("parsed again"))
    again = load_digits()
    assert again.fingerprint() == embedded.fingerprint()


def stand_in() -> tuple[np.ndarray, np.ndarray]:
    """Arrays with the shape of the embedded digits, without the slow parsing."""
    return np.zeros((5000, 28, 28), np.uint8), np.arange(5000) % 10


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1000])


def not_a_zip(path: Path) -> None:
    path.write_text("digits")


def without_labels(path: Path) -> None:
    np.savez(path, images=stand_in()[0])


def too_few(path: Path) -> None:
    np.savez(path, images=np.zeros((3, 28, 28), np.uint8), labels=np.zeros(3))


def pickled(path: Path) -> None:
    np.savez(path, images=np.array([{}], dtype=object), labels=np.zeros(3))


def one_array(path: Path) -> None:
    with path.open("wb") as stream:
        np.save(stream, np.zeros(3))


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[200:240] = bytes(40)
    path.write_bytes(data)


@pytest.mark.parametrize(
    "damage", [truncated, not_a_zip, without_labels, too_few, pickled, one_array, flipped]
)
def test_a_damaged_cache_is_rebuilt(
    damage: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IPS_CACHE", str(tmp_path))
    monkeypatch.setattr("ips.data.synthetic.digits._parse", stand_in)
    load_digits()
    path = tmp_path / "mnist-5000.npz"
    damage(path)
    assert load_digits().images.shape == (5000, 28, 28)
    assert zipfile.is_zipfile(path)
    with np.load(path, allow_pickle=False) as stored:
        assert np.array_equal(stored["labels"], stand_in()[1])
    assert [file.name for file in tmp_path.iterdir()] == [path.name]  # no temporary file stays


def test_works_without_a_writable_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("a folder cannot be made below a file")
    monkeypatch.setenv("IPS_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr("ips.data.synthetic.digits._parse", stand_in)
    assert len(load_digits().labels) == 5000


def test_works_without_a_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("IPS_CACHE")
    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.setattr("ips.data.synthetic.digits._parse", stand_in)
    assert len(load_digits().labels) == 5000


def idx(array: np.ndarray) -> bytes:
    header = struct.pack(f">{1 + array.ndim}I", 0x0800 + array.ndim, *array.shape)
    return header + array.astype(np.uint8).tobytes()


def write_mnist(folder: Path, *, packed: bool) -> tuple[np.ndarray, np.ndarray]:
    """30 train and 10 test digits as IDX files, and what they hold."""
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(40, 28, 28))
    labels = np.arange(40) % 10
    for stem, part in (("train", slice(30)), ("t10k", slice(30, None))):
        for kind, array in (("images-idx3", images[part]), ("labels-idx1", labels[part])):
            data, name = idx(array), f"{stem}-{kind}-ubyte"
            if packed:
                (folder / f"{name}.gz").write_bytes(gzip.compress(data))
            else:
                (folder / name).write_bytes(data)
    return images, labels


@pytest.mark.parametrize("packed", [False, True])
def test_idx_files_keep_their_own_split(packed: bool, tmp_path: Path) -> None:
    images, labels = write_mnist(tmp_path, packed=packed)
    digits = load_digits(tmp_path)
    assert np.array_equal(digits.images, images)
    assert digits.images.dtype == np.uint8
    assert np.array_equal(digits.labels, labels)
    assert digits.train.tolist() == list(range(30))
    assert digits.test.tolist() == list(range(30, 40))


IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        (IMAGES, None, "is missing: fetch MNIST with 'ips data mnist "),
        (IMAGES, b"", "is not an IDX file"),
        (IMAGES, b"\0\0\x08", "is not an IDX file"),
        (IMAGES, idx(np.zeros(30)), "is not an IDX file of 3-dimensional bytes"),
        (IMAGES, idx(np.zeros((30, 28, 28)))[:-1], "has 23519 bytes, expected 23520"),
        (IMAGES, idx(np.zeros((30, 28, 28))) + b"\0", "has 23521 bytes, expected 23520"),
        (IMAGES, idx(np.zeros((30, 32, 32))), r"holds items of \(32, 32\), not \(28, 28\)"),
        (LABELS, idx(np.zeros(29)), "29 labels for the 30 images"),
        (LABELS, idx(np.full(30, 10)), "label 10 is not a digit"),
    ],
)
def test_wrong_idx_files_are_refused(
    name: str, data: bytes | None, message: str, tmp_path: Path
) -> None:
    write_mnist(tmp_path, packed=False)
    (tmp_path / name).unlink()
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=message) as caught:
        load_digits(tmp_path)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    "data", [b"not gzip", gzip.compress(idx(np.zeros(30)), mtime=0)[:-9]], ids=["no gzip", "cut"]
)
def test_a_damaged_gzip_file_is_refused(data: bytes, tmp_path: Path) -> None:
    write_mnist(tmp_path, packed=True)
    (tmp_path / f"{LABELS}.gz").write_bytes(data)
    with pytest.raises(DataError, match=f"{LABELS}.gz cannot be read"):
        load_digits(tmp_path)


def test_a_gzip_bomb_is_refused(tmp_path: Path) -> None:
    write_mnist(tmp_path, packed=True)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(bytes(2**28), 1))
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz is not an IDX file"):
        load_digits(tmp_path)


@pytest.mark.parametrize("shape", ["(2, 3)", "(2, 10**9)", "(2000000000000,)", "(-2,)", "(2,"])
def test_an_array_of_another_size_is_refused(tmp_path: Path, shape: str) -> None:
    path = tmp_path / "a.npz"
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}}}".ljust(117) + "\n"
    with zipfile.ZipFile(path, "w") as archive:
        start = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()
        archive.writestr("a.npy", start + bytes(5))
    with pytest.raises(ValueError, match=r"a\.npy is not an array|header|malformed|EOF"):
        load_arrays(path)


def test_arrays_that_unpack_to_any_size_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez_compressed(tmp_path / "a.npz", a=np.zeros(1000, np.uint8))
    assert load_arrays(tmp_path / "a.npz")["a"].shape == (1000,)
    monkeypatch.setattr("ips.data.synthetic.digits._MAX_UNPACKED", 1000)
    with pytest.raises(ValueError, match="unpacks to more than"):
        load_arrays(tmp_path / "a.npz")
