"""Damage bytes at random, as a bad disk, a broken download or a program with a bug would."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

#: Integers at which sizes, offsets and counts overflow or change their sign.
EXTREMES = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1)
_LARGE = (2**63 - 1, 2**63, 2**64 - 1, 2**40)
_MAX_BYTES = 1 << 20  # of a damaged file


def damage(data: bytes, random: Random, *, others: Sequence[bytes] = ()) -> bytes:
    """Return ``data`` with one to four kinds of damage; ``others`` are files to splice in."""
    kinds: list[Callable[[bytes, Random], bytes]] = [
        *_KINDS,
        partial(_splice, others=others or [data]),
    ]
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        data = random.choice(kinds)(data, random)
    return data[:_MAX_BYTES]


def _place(data: bytes, random: Random, size: int = 1) -> int:
    """A position; half of them are near the start, where headers are."""
    end = max(len(data) - size, 0)
    return random.randint(0, min(end, 256) if random.random() < 0.5 else end)


def _flip_bits(data: bytes, random: Random) -> bytes:
    out = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 8, 64)) if out else 0):
        out[_place(data, random)] ^= 1 << random.randrange(8)
    return bytes(out)


def _set_bytes(data: bytes, random: Random) -> bytes:
    out = bytearray(data)
    for _ in range(random.choice((1, 1, 4, 32)) if out else 0):
        out[_place(data, random)] = random.choice((0, 0xFF, random.randrange(256)))
    return bytes(out)


def _truncate(data: bytes, random: Random) -> bytes:
    return data[: random.choice((_place(data, random), max(0, len(data) - random.randint(1, 16))))]


def _zero_block(data: bytes, random: Random) -> bytes:
    start = _place(data, random)
    stop = min(len(data), start + random.choice((4, 16, 64, 512, 4096)))
    return data[:start] + bytes(stop - start) + data[stop:]


def _insert(data: bytes, random: Random) -> bytes:
    at = _place(data, random)
    return data[:at] + random.randbytes(random.choice((1, 2, 7, 64, 513))) + data[at:]


def _remove(data: bytes, random: Random) -> bytes:
    start = _place(data, random)
    return data[:start] + data[start + random.choice((1, 2, 8, 100, 600)) :]


def _repeat(data: bytes, random: Random) -> bytes:
    start = _place(data, random)
    chunk = data[start : start + random.choice((1, 8, 64, 1000))]
    return data[:start] + chunk * random.choice((2, 2, 3, 50)) + data[start + len(chunk) :]


def _extreme_integer(data: bytes, random: Random) -> bytes:
    """Overwrite 1, 2, 4 or 8 bytes with an integer at a limit."""
    order, code = random.choice("<>"), random.choice("BHIIQ")
    number = random.choice((*EXTREMES, *_LARGE)) & (2 ** (8 * struct.calcsize(code)) - 1)
    packed = struct.pack(order + code, number)
    at = _place(data, random, len(packed))
    if random.random() < 0.5:  # most fields are aligned
        at -= at % len(packed)
    return data[:at] + packed + data[at + len(packed) :]


def _splice(data: bytes, random: Random, *, others: Sequence[bytes]) -> bytes:
    other = random.choice(others)
    return data[: _place(data, random)] + other[_place(other, random) :]


_KINDS: tuple[Callable[[bytes, Random], bytes], ...] = (
    *(_flip_bits, _flip_bits, _set_bytes, _truncate, _zero_block, _insert, _remove, _repeat),
    *(_extreme_integer, _extreme_integer),
)
