"""Edit a file inside its format: checksums and lengths stay right, so that the change is read."""

from __future__ import annotations

import gzip
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from random import Random

from fuzz.corrupt import EXTREMES, damage
from fuzz.family import Edit
from fuzz.text import edit_text, hostile

_PNG_START = 8
_ZIP_NAMES = (
    *("../x", "/x", "C:\\x", "a/../../x", "", ".", "a" * 300, "a\0b", "CON", "é", "a/b/", "\u202e"),
    *("x\ny", "//x/y", "~", " ", "a:b"),
)


def in_gzip(edit: Edit) -> Edit:
    """An edit of the unpacked content of a gzip file."""
    return lambda data, random: gzip.compress(edit(gzip.decompress(data), random), mtime=0)


def in_zip(edit: Edit) -> Edit:
    """An edit of one file of a zip archive; its checksum is that of the new content."""

    def change(data: bytes, random: Random) -> bytes:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [(m.filename, m.compress_type, archive.read(m)) for m in archive.infolist()]
        at = random.randrange(len(members))
        name, kind, content = members[at]
        action = random.choice(("edit", "edit", "edit", "remove", "repeat", "rename", "empty"))
        match action:
            case "edit":
                members[at] = name, kind, edit(content, random)
            case "remove":
                del members[at]
            case "repeat":
                members.append((name, kind, edit(content, random)))
            case "rename":
                members[at] = random.choice(_ZIP_NAMES), kind, content
            case "empty":
                members[at] = name, kind, b""
        return _write_zip(members)

    return change


def edit_zip(data: bytes, random: Random) -> bytes:
    """Names, sizes and flags in the directory of a zip archive; sometimes a zip bomb."""
    if random.random() < 0.05:
        return _write_zip([("bomb.txt", zipfile.ZIP_DEFLATED, bytes(2**27))])
    if random.random() < 0.5:
        return in_zip(damage)(data, random)
    out = bytearray(data)
    signature = random.choice((b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06"))
    start = data.find(signature)
    if start < 0:
        return data
    at = start + 4 + 2 * random.randrange(20)
    out[at : at + 2] = struct.pack("<H", random.choice(EXTREMES) & 0xFFFF)
    return bytes(out)


def _write_zip(members: list[tuple[str, int, bytes]]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, kind, content in members:
            archive.writestr(zipfile.ZipInfo(name or "x"), content, compress_type=kind)
    return out.getvalue()


def edit_png(data: bytes, random: Random) -> bytes:
    """Change, remove, repeat or move a chunk of a PNG; its checksum is right again."""
    chunks = list(_png_chunks(data))
    if not chunks:
        return data
    at = random.randrange(len(chunks))
    kind, content = chunks.pop(at)
    names = (
        b"IDAT",
        b"PLTE",
        b"tRNS",
        b"gAMA",
        b"iCCP",
        b"zTXt",
        b"eXIf",
        b"acTL",
        b"fcTL",
        b"IEND",
    )
    new = random.choice(
        (
            [(kind, damage(content, random))],
            [(kind, damage(content, random))],
            [],
            [(kind, content)] * 2,
            [(random.choice(names), content), (kind, content)],
            [(random.choice(names), random.randbytes(random.randint(0, 40))), (kind, content)],
        )
    )
    chunks[at:at] = new
    packed = [
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    ]
    return data[:_PNG_START] + b"".join(packed)


def _png_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = _PNG_START
    while at + 8 <= len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        yield data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        at += 12 + length


def edit_tiff(data: bytes, random: Random) -> bytes:
    """Change one entry of the tags of a little-endian TIFF or BigTIFF: its name, type or values."""
    entries = list(_tiff_entries(data))
    if not entries:
        return data
    at, big = random.choice(entries)
    tag, kind = struct.unpack("<HH", data[at : at + 4])
    wide = "Q" if big else "I"
    size = struct.calcsize("<" + wide)
    count, value = struct.unpack(f"<2{wide}", data[at + 4 : at + 4 + 2 * size])
    number = random.choice((*EXTREMES, value + 1, value - 1, value * 2, value // 2, value + 16))
    match random.choice(("value", "value", "value", "value", "count", "kind", "tag", "array")):
        case "value":
            value = number
        case "count":
            count = random.choice((number, count + 1, max(count - 1, 0), 0))
        case "kind":
            kind = random.choice((*range(1, 19), 0, 255))
        case "tag":
            tag = random.choice(
                (254, 256, 257, 258, 259, 262, 273, 277, 278, 279, 284, 317, 322, 323)
            )
        case "array":  # one number of the array that the entry points to
            place = value + 4 * random.randrange(max(1, min(count, 64)))
            if place + 4 <= len(data):
                return data[:place] + struct.pack("<I", number & 0xFFFFFFFF) + data[place + 4 :]
    most = 2 ** (8 * size) - 1
    packed = struct.pack(f"<HH2{wide}", tag, kind, count & most, value & most)
    return data[:at] + packed + data[at + len(packed) :]


def _tiff_entries(data: bytes) -> Iterator[tuple[int, bool]]:
    """Positions of the entries of all pages, and whether the file is a BigTIFF."""
    big = data[2:4] == b"+\0"
    step, count_code = (20, "<Q") if big else (12, "<H")
    at_code = "<Q" if big else "<I"
    width, head = struct.calcsize(at_code), struct.calcsize(count_code)
    (page,) = struct.unpack_from(at_code, data, 8 if big else 4)
    seen: set[int] = set()
    while page and page not in seen and page + head <= len(data):
        seen.add(page)
        (count,) = struct.unpack_from(count_code, data, page)
        end = page + head + step * count
        if end + width > len(data):
            return
        yield from ((page + head + step * i, big) for i in range(count))
        (page,) = struct.unpack_from(at_code, data, end)


def edit_npy(data: bytes, random: Random) -> bytes:
    """Change the header of an ``.npy`` file, a Python literal; its length is right again."""
    if len(data) < 10 or data[:6] != b"\x93NUMPY":
        return damage(data, random)
    (length,) = struct.unpack("<H", data[8:10])
    header = data[10 : 10 + length]
    types = (
        b"'|u1'",
        b"'<f4'",
        b"'<f8'",
        b"'|O'",
        b"'<U3'",
        b"'<M8[s]'",
        b"'|V3'",
        b"'<i2'",
        b"'>u1'",
    )
    shapes = (
        b"()",
        b"(0,)",
        b"(-1, 4)",
        b"(4, 4, 2)",
        b"(1, 1)",
        b"(100000, 100000, 3)",
        b"(True, 3)",
    )
    start, stop = header.find(b"'descr': ") + 9, header.find(b", 'fortran")
    match random.randrange(4):
        case 0 if stop > 0:
            header = header[:start] + random.choice(types) + header[stop:]
        case 1 if b"(" in header:
            header = header[: header.find(b"(")] + random.choice(shapes) + b", }"
        case 2:
            header = header.replace(b"False", random.choice((b"True", b"2", b"'x'")))
        case _:
            header = edit_text(header, random)
    return data[:8] + struct.pack("<H", min(len(header), 65535)) + header + data[10 + length :]


def edit_safetensors(data: bytes, random: Random) -> bytes:
    """Change the header of a safetensors file, JSON; its length is right again."""
    (length,) = struct.unpack("<Q", data[:8])
    header, body = data[8 : 8 + length], data[8 + length :]
    try:
        values = json.loads(header)
    except ValueError:
        return damage(data, random)
    name = random.choice(list(values) or ["x"])
    match random.randrange(5):
        case 0:
            header = edit_text(header, random)
        case 1 if isinstance(values.get(name), dict) and "dtype" in values[name]:
            values[name]["dtype"] = random.choice(
                ("F64", "F16", "BF16", "I32", "U8", "BOOL", "X", 3)
            )
            header = json.dumps(values).encode()
        case 2 if isinstance(values.get(name), dict) and "shape" in values[name]:
            shape = values[name]["shape"]
            values[name]["shape"] = random.choice(
                (shape[::-1], [*shape, 1], [], [-1], [2**62, 4], "x")
            )
            header = json.dumps(values).encode()
        case 3:
            moved = random.choice(("x", "", "a" * 500, "\x1b[31m", f"{name}.x"))
            values[moved] = values.pop(name, {})
            header = json.dumps(values).encode()
        case _ if "__metadata__" in values:
            header = _edit_metadata(values, random)
    return struct.pack("<Q", len(header)) + header + body


def _edit_metadata(values: dict[str, object], random: Random) -> bytes:
    """Change the text that the header holds about the file."""
    metadata = values["__metadata__"]
    if not isinstance(metadata, dict) or not metadata:
        return json.dumps(values).encode()
    key = random.choice(list(metadata))
    text = str(metadata[key]).encode("utf-8", errors="replace")
    changed = edit_text(text, random) if random.random() < 0.8 else hostile(random)
    metadata[key] = changed.decode("utf-8", errors="replace")
    return json.dumps(values).encode()


def either(*edits: Callable[[bytes, Random], bytes]) -> Edit:
    """One of several edits, chosen for each file."""
    return lambda data, random: random.choice(edits)(data, random)
