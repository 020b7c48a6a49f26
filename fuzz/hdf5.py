"""Edit an HDF5 file with h5py: attributes of the wrong kind, other shapes and types, links."""

from __future__ import annotations

import io
from random import Random
from typing import Any

import h5py
import numpy as np

_VALUES: tuple[Any, ...] = (
    *(
        float("nan"),
        float("inf"),
        -1,
        0,
        1e300,
        10**9,
        2**62,
        0.5,
        -(2**62),
        True,
        "",
        "None",
        "px",
    ),
    *("um", "x" * 2000, "a\nb", "\x1b[31m", b"\xff\xfe", b"3", "3", "é"),
    *(
        np.zeros(0),
        np.arange(4.0),
        np.array([[1, 2], [3, 4]]),
        np.array([b"\xff"]),
        np.bytes_(b"\xff"),
    ),
    *(np.void(b"\1\2"), np.complex64(1j), np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f4")])),
    *(
        h5py.Empty("f4"),
        np.float16(3),
        np.uint64(2**64 - 1),
        np.datetime64("2001", "s").astype("i8"),
    ),
)
_TYPES = ("f2", "f4", "f8", "i1", "u1", "i4", "u8", "S3", "c8", ">f4", "?")
_HUGE = ((10**9, 1024), (2**40, 2), (0, 2), (1, 1), (3,), (), (2, 2, 2), (1, 0))


def edit_hdf5(data: bytes, random: Random) -> bytes:
    """Return the file with one change that h5py can write; the same file if it cannot be opened."""
    buffer = io.BytesIO(data)
    try:
        with h5py.File(buffer, "r+") as file:
            _change(file, random)
    except (ArithmeticError, LookupError, OSError, RuntimeError, TypeError, ValueError):
        pass  # an earlier edit does not allow this one; what is written so far counts
    return buffer.getvalue()


def _change(file: h5py.File, random: Random) -> None:
    names: list[str] = []
    file.visit(names.append)
    name = random.choice(sorted(names) or ["x"])
    match random.randrange(5):
        case 0 | 1:
            _change_attribute(file if random.random() < 0.3 else file[name], random)
        case 2:
            _replace_array(file, name, random)
        case 3:
            _replace_object(file, name, random)
        case 4:
            array = file[name]
            if isinstance(array, h5py.Dataset) and array.size:
                hostile = random.choice((float("nan"), float("inf"), -1, 2**62, -(2**62), 1e30))
                where = tuple(random.randrange(size) for size in array.shape)
                array[where] = hostile


def _change_attribute(owner: Any, random: Random) -> None:
    known = sorted(owner.attrs)
    extra = ("patch_size", "patch_size_level0", "unit", "mpp", "tile_size_um", "format", "version")
    key = random.choice(known) if known and random.random() < 0.8 else random.choice(extra)
    if random.random() < 0.1:
        owner.attrs.pop(key, None)
        return
    owner.attrs.pop(key, None)
    owner.attrs[key] = random.choice(_VALUES)


def _replace_array(file: h5py.File, name: str, random: Random) -> None:
    """The same array with another type, shape, order or storage."""
    array = file[name]
    if not isinstance(array, h5py.Dataset):
        return
    values, attributes = array[()], dict(array.attrs)
    del file[name]
    kind = random.randrange(6)
    if kind == 0:
        with np.errstate(all="ignore"):
            new = file.create_dataset(name, data=np.asarray(values).astype(random.choice(_TYPES)))
    elif kind == 1:
        shape = random.choice(_HUGE)
        chunks = tuple(min(max(size, 1), 16) for size in shape) if shape else None
        filters = random.choice((None, "gzip")) if shape else None
        new = file.create_dataset(name, shape, values.dtype, chunks=chunks, compression=filters)
    elif kind == 2:
        new = file.create_dataset(name, data=np.asarray(values).T)
    elif kind == 3:
        new = file.create_dataset(name, data=np.asarray(values)[: len(values) // 2])
    elif kind == 4:
        text = np.asarray(values).astype(str).astype(object)
        new = file.create_dataset(name, data=text, dtype=h5py.string_dtype())
    else:
        options = {"chunks": True, "shuffle": True, "fletcher32": True, "compression": "lzf"}
        new = file.create_dataset(name, data=values, **options)
    for key, value in attributes.items():
        new.attrs[key] = value


def _replace_object(file: h5py.File, name: str, random: Random) -> None:
    """A link, a group, a type or another file's bytes in the place of an array."""
    array = file[name]
    shape = getattr(array, "shape", (2, 2))
    del file[name]
    match random.randrange(6):
        case 0:
            file[name] = h5py.ExternalLink("/etc/hostname", "/")
        case 1:
            file[name] = h5py.SoftLink(random.choice(("/nothing", f"/{name}", "/")))
        case 2:
            file.create_group(name)
        case 3:
            file.create_dataset(name, shape, "f4", external=[("/proc/self/maps", 0, 10**6)])
        case 4:
            layout = h5py.VirtualLayout(shape, "f4")
            layout[...] = h5py.VirtualSource("/tmp/nothing.h5", "x", shape)
            file.create_virtual_dataset(name, layout)
        case 5:
            file[name] = np.dtype("f4")
