"""Object arrays are read without unpickling: plain data comes back, anything else is refused."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ips.data.object_arrays import read_objects

DATA: list[Any] = [
    {"a": (np.arange(5), np.array([0.5, 1], np.float32)), "b": np.int64(-3), "c": np.uint8(7)},
    {"a": [], "b": 3, "c": [None, True, False, "é", b"x", 2.5, -70_000, (1, 2, 3, 4), ()]},
    {"a": np.eye(10)[2], "b": np.arange(300, dtype=np.int32), "c": np.float64(0.1)},
]


def write(path: Path, objects: list[Any], *, protocol: int = 4, old: bool = False) -> Path:
    """Write a file as ``numpy.save`` does, also as earlier versions of numpy did."""
    array = np.empty(len(objects), dtype=object)
    array[:] = objects
    content = pickle.dumps(array, protocol=protocol)
    if old:
        content = content.replace(b"numpy._core.", b"numpy.core.")
        assert b"\x89\x88\x87" in content  # False, True at the end of the arguments of a dtype
        content = content.replace(b"\x89\x88\x87", b"K\x00K\x01\x87")
    return write_pickle(path, content, count=len(objects))


def write_pickle(path: Path, content: bytes, *, count: int = 1) -> Path:
    with path.open("wb") as file:
        header = {"descr": "|O", "fortran_order": False, "shape": (count,)}
        np.lib.format.write_array_header_1_0(file, header)
        file.write(content)
    return path


def test_a_file_of_numpy_save_is_read(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array(DATA, dtype=object))
    np.testing.assert_equal(read_objects(tmp_path / "a.npy"), DATA)


def test_a_file_of_an_earlier_numpy_is_read(tmp_path: Path) -> None:
    many = [{"a": np.arange(3)} for _ in range(2500)]  # more than one batch of a pickled list
    for objects in (DATA, many):
        path = write(tmp_path / "a.npy", objects, protocol=3, old=True)
        read = read_objects(path)
        np.testing.assert_equal(read, objects)
    dtypes = [value.dtype for value in read_objects(write(path, DATA))[0]["a"]]
    assert dtypes == [np.int64, np.float32]


class Call:
    """Unpickles to the result of a call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.call


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("depth", [0, 1])
def test_code_is_refused_and_does_not_run(tmp_path: Path, protocol: int, depth: int) -> None:
    ran = tmp_path / "ran"
    objects: Any = Call(os.mkdir, str(ran))
    path = write(tmp_path / "a.npy", [{"a": objects} if depth else objects], protocol=protocol)
    with pytest.raises(ValueError, match=r"mkdir|operation|_codecs|_frombuffer"):
        read_objects(path)
    assert not ran.exists()
    np.load(path, allow_pickle=True)
    assert ran.exists()  # so that the file would have run it


class Point:
    pass


@pytest.mark.parametrize(
    "value",
    [
        Point(),
        Point,
        Call(np.array, [1]),
        {1, 2},
        10**30,
        np.zeros((2, 2)),
        np.array(["text"]),
        np.array([1], ">i8"),
        np.array([(1, 2)], "i4,i4"),
        np.datetime64("2020-01-01"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_objects_are_refused(tmp_path: Path, value: Any) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_objects(write(tmp_path / "a.npy", [value]))


@pytest.mark.parametrize("shared", [np.arange(9), [1], {"a": 1}, ("a", 1), b"many"])
def test_a_large_object_may_not_occur_twice(tmp_path: Path, shared: Any) -> None:
    path = write(tmp_path / "a.npy", [{"a": shared, "b": shared}])
    with pytest.raises(ValueError, match="occurs more than once"):
        read_objects(path)


def test_a_small_file_cannot_grow(tmp_path: Path) -> None:
    value: Any = []
    for _ in range(200):  # as text, or as an array, it would have 2^200 elements
        value = [value, value]
    for content in (pickle.dumps([value]), pickle.dumps(value)[:-1] + b"NR."):
        with pytest.raises(ValueError, match="occurs more than once"):
            read_objects(write_pickle(tmp_path / "a.npy", content))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b".",
        b"\x80\x04N.",
        b"\x80\x04].",  # fewer objects than the header says
        b"\x80\x04h\x05.",  # recalls what was never stored
        b"\x80\x04e.",
        b"\x80\x04](NNe",  # no end
        b"\x80\x04}(]Nu.",  # a list as a key
        b"\x80\x04NNR.",
        b"\x80\x04cnumpy\nndarray\nNR.",
        b"\x80\x04B\xff\xff\xff\x7fshort.",
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7fshort.",
        b"text",
    ],
)
def test_damaged_pickles_are_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_objects(write_pickle(tmp_path / "a.npy", content))


def cuts_and_flips(content: bytes) -> Iterator[bytes]:
    rng = np.random.default_rng(0)
    for place in range(0, len(content) - 1, 15):
        yield content[:place]
        damaged = bytearray(content)
        damaged[place] = int(rng.integers(256))
        yield bytes(damaged)


def test_a_damaged_file_gives_no_other_error(tmp_path: Path) -> None:
    content = write(tmp_path / "a.npy", DATA).read_bytes()
    refused = 0
    for damaged in cuts_and_flips(content):
        (tmp_path / "a.npy").write_bytes(damaged)
        try:
            read_objects(tmp_path / "a.npy")
        except ValueError:
            refused += 1
    assert refused > len(content) // 15  # all that were cut, and more


def test_other_arrays_are_refused(tmp_path: Path) -> None:
    for array in (np.zeros(3), np.array([[{}]], dtype=object)):
        stream = io.BytesIO()
        np.save(stream, array)
        (tmp_path / "a.npy").write_bytes(stream.getvalue())
        with pytest.raises(ValueError, match="not a list of objects"):
            read_objects(tmp_path / "a.npy")
