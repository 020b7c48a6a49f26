"""Read ``.npy`` files of Python objects without unpickling them.

Unpickling can run any code that a file contains. Here, the operations of the pickle are listed by
``pickletools``, which runs nothing, and the few that dicts, lists, tuples, strings, numbers and
numpy arrays of numbers consist of are carried out by hand. Everything else is an error.

A pickle may refer to an object again and again. That is an error for all but small objects, so that
what is read takes no more memory than the file has room for.
"""

from __future__ import annotations

import mmap
import pickletools
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

_CONSTANTS = {
    *("BININT", "BININT1", "BININT2", "BINFLOAT"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINBYTES", "SHORT_BINBYTES"),
}
_KEYWORDS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_NUMBERS = ("u1", "i4", "i8", "f4", "f8")


class _Name(NamedTuple):
    """A function or class that a pickle refers to; only its name is used."""

    module: str
    name: str


_NDARRAY, _DTYPE = _Name("numpy", "ndarray"), _Name("numpy", "dtype")
_ARRAY, _SCALAR = (_Name("numpy.core.multiarray", name) for name in ("_reconstruct", "scalar"))
_NAMES = (_NDARRAY, _DTYPE, _ARRAY, _SCALAR)
_EMPTY_ARRAY = object()


def read_objects(path: Path) -> list[Any]:
    """Read a one-dimensional array of objects that ``numpy.save`` wrote.

    Raises:
        ValueError: the file is damaged, or contains other objects than those named above.
    """
    try:
        with path.open("rb") as file:
            version = np.lib.format.read_magic(file)
            if version != (1, 0):
                raise ValueError(f"version {version} of the format")
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            if dtype.kind != "O" or len(shape) != 1:
                raise ValueError(f"an array of {dtype} {shape}, not a list of objects")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                data.seek(file.tell())
                objects = _interpret(pickletools.genops(data))  # type: ignore[arg-type]
    except (OSError, ValueError):
        raise
    except Exception as error:  # a damaged file can fail anywhere
        raise ValueError(f"damaged: {type(error).__name__}") from error
    if not isinstance(objects, list) or len(objects) != shape[0]:
        raise ValueError(f"not a list of {shape[0]} objects")
    return objects


def _interpret(operations: Iterable[tuple[pickletools.OpcodeInfo, Any, int | None]]) -> Any:
    """The object that these operations build on a stack."""
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}

    def pop_from(start: int) -> list[Any]:
        items = stack[start:]
        del stack[start:]
        return items

    for operation, argument, _ in operations:
        match operation.name:
            case "PROTO" | "FRAME":
                pass
            case "STOP":
                return stack.pop()
            case "MARK":
                marks.append(len(stack))
            case "MEMOIZE":
                memo[len(memo)] = stack[-1]
            case "BINPUT" | "LONG_BINPUT":
                memo[argument] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(_recall(memo[argument]))
            case constant if constant in _CONSTANTS:
                stack.append(argument)
            case keyword if keyword in _KEYWORDS:
                stack.append(_KEYWORDS[keyword])
            case size if size in _TUPLES:
                stack.append(tuple(pop_from(len(stack) - _TUPLES[size])))
            case "TUPLE":
                stack.append(tuple(pop_from(marks.pop())))
            case "EMPTY_LIST":
                stack.append([])
            case "APPEND":
                stack[-2].append(stack.pop())
            case "APPENDS":
                items = pop_from(marks.pop())
                stack[-1].extend(items)
            case "EMPTY_DICT":
                stack.append({})
            case "SETITEM" | "SETITEMS" as what:
                items = pop_from(len(stack) - 2 if what == "SETITEM" else marks.pop())
                stack[-1].update(zip(items[::2], items[1::2], strict=True))
            case "GLOBAL" | "STACK_GLOBAL" as what:
                names = argument.split(" ") if what == "GLOBAL" else pop_from(len(stack) - 2)
                stack.append(_find_name(*names))
            case "REDUCE":
                function, arguments = pop_from(len(stack) - 2)
                stack.append(_call(function, arguments))
            case "BUILD":
                target, state = pop_from(len(stack) - 2)
                stack.append(_build(target, state))
            case other:
                raise ValueError(f"the operation {other}")
    raise ValueError("the end is missing")


def _recall(value: Any) -> Any:
    small = isinstance(value, str | _Name | np.dtype | np.generic)
    if not small and not (isinstance(value, bytes) and len(value) <= 1):
        raise ValueError("a list, dict, tuple or array that occurs more than once")
    return value


def _find_name(module: str, name: str) -> _Name:
    found = _Name(module.replace("numpy._core.", "numpy.core."), name)
    if found not in _NAMES:
        raise ValueError(f"{f'{module}.{name}'[:80]!r}, which is not a plain number or array")
    return found


def _call(function: _Name, arguments: Any) -> Any:
    match function, arguments:
        # numpy writes False and True, which equal 0 and 1; earlier versions wrote the numbers.
        case name, (code, 0, 1) if name == _DTYPE and code in (*_NUMBERS, "O8"):
            return np.dtype(object if code == "O8" else f"<{code}")
        case name, (kind, (0,), b"b") if name == _ARRAY and kind == _NDARRAY:
            return _EMPTY_ARRAY
        case name, (np.dtype() as dtype, bytes() as content) if name == _SCALAR:
            return _numbers(content, dtype, shape=(1,))[0]
    raise ValueError("a call that makes neither a number nor an array")


def _build(target: Any, state: Any) -> Any:
    match state:
        case (3, "<" | "|", None, None, None, -1, -1, int()) if isinstance(target, np.dtype):
            return target
        case (1, (int(),) as shape, np.dtype() as dtype, bool(), content) if target is _EMPTY_ARRAY:
            if dtype.kind == "O" and isinstance(content, list):
                return content
            return _numbers(content, dtype, shape=shape)
    raise ValueError("an unknown kind of array")


def _numbers(
    content: bytes, dtype: np.dtype[Any], *, shape: tuple[int, ...]
) -> npt.NDArray[np.generic]:
    if dtype.kind == "O" or not isinstance(content, bytes):
        raise ValueError("an array without its numbers")
    return np.frombuffer(content, dtype=dtype).reshape(shape)
