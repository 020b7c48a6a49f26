"""Put hostile tokens into text: YAML, JSON, CSV, XML and headers that consist of text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

_NUMBERS = (
    *("nan", "NaN", ".nan", "inf", "-inf", "Infinity", ".inf", "1e400", "-1", "0", "-0", "0.5"),
    *("1e-320", str(10**9), str(10**30), str(-(10**30)), "9" * 5000, "1e5", "0x10", "1_000", "٣"),
    *(str(2**31), str(2**63), str(2**64), "0o17", "1:30", "2001-01-01"),
)
_WORDS = (
    *("", "null", "~", "true", "no", '""', "''", "[]", "{}", "[1, 2]", "{a: 1}", '{"a": 1}'),
    *("\0", "\x1b[31m", "\r", "\n", "\t", "\u2028", "\ufeff", "é", "日本", "\U0001f600", "\ud800"),
    *(
        "../../etc/passwd",
        "/dev/null",
        "C:\\x",
        "~root",
        "a" * 3000,
        " ",
        "::",
        "%s",
        "{0}",
        "$HOME",
    ),
    *("!!python/object:os.system", "&a", "*a", "<<", "- -", "---", "!!binary abc", "!!set", "?"),
    *("</Annotations>", "<!DOCTYPE a>", "&lt;", "&#0;", "<![CDATA[", "=1+1", '"', "'", ",", ";"),
)
_TOKEN = re.compile(rb"-?\d+(?:\.\d+)?(?:e-?\d+)?|[A-Za-z_][\w.-]*|\"[^\"\n]*\"|'[^'\n]*'")
_BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n"
    for old, new in zip("abcdefg", "bcdefgh", strict=True)
)


def edit_text(data: bytes, random: Random) -> bytes:
    """Return ``data`` with one hostile change."""
    return random.choice(_EDITS)(data, random)


def edit_yaml(data: bytes, random: Random) -> bytes:
    """The same, also with nested aliases under one of the keys."""
    if random.random() < 0.1:
        keys = [match[0] for match in re.finditer(rb"(?m)^[ ]*[\w-]+(?=:)", data)]
        key = random.choice(keys or [b"x"])
        return _BOMB.encode() + data.replace(key + b":", key + b": *h\nx:", 1)
    return edit_text(data, random)


def hostile(random: Random) -> bytes:
    """One token."""
    token = random.choice(random.choice((_NUMBERS, _WORDS)))
    return token.encode("utf-8", errors="surrogatepass")


def _swap_token(data: bytes, random: Random) -> bytes:
    tokens = list(_TOKEN.finditer(data))
    if not tokens:
        return data + hostile(random)
    chosen = random.choice(tokens)
    new = hostile(random)
    if chosen[0][:1] in b"\"'" and random.random() < 0.7:  # keep the quotes
        quote = chosen[0][:1]
        new = quote + new.replace(quote, b"").replace(b"\n", b" ") + quote
    return data[: chosen.start()] + new + data[chosen.end() :]


def _swap_two(data: bytes, random: Random) -> bytes:
    tokens = list(_TOKEN.finditer(data))
    if len(tokens) < 2:
        return data
    first, second = sorted(random.sample(tokens, 2), key=lambda match: match.start())
    parts = data[: first.start()], second[0], data[first.end() : second.start()], first[0]
    return b"".join(parts) + data[second.end() :]


def _lines(data: bytes, random: Random) -> bytes:
    """Remove, repeat or move a line."""
    lines = data.splitlines(keepends=True) or [b""]
    at = random.randrange(len(lines))
    line = lines.pop(at)
    new = random.choice(([], [line, line], [line] * 200, [line[: len(line) // 2]]))
    if random.random() < 0.3:
        at = random.randint(0, len(lines))
    return b"".join([*lines[:at], *new, *lines[at:]])


def _nest(data: bytes, random: Random) -> bytes:
    """Replace a token by deep nesting."""
    depth = random.choice((50, 1000, 20_000))
    opening, closing = random.choice(
        ((b"[", b"]"), (b'{"a":', b"}"), (b"<a>", b"</a>"), (b"(", b")"))
    )
    deep = opening * depth + b"1" + (closing * depth if random.random() < 0.7 else b"")
    tokens: Sequence[re.Match[bytes]] = list(_TOKEN.finditer(data))
    if not tokens or random.random() < 0.2:
        return deep
    chosen = random.choice(tokens)
    return data[: chosen.start()] + deep + data[chosen.end() :]


def _encode(data: bytes, random: Random) -> bytes:
    """Another encoding, or bytes of none."""
    text = data.decode("utf-8", errors="replace")
    bad = data[: len(data) // 2] + random.choice((b"\xff\xfe", b"\xc3(", b"\0", b"\x80")) + data
    return random.choice(
        (
            text.encode("utf-16"),
            text.encode("utf-32"),
            b"\xef\xbb\xbf" + data,
            text.encode("latin-1", errors="replace"),
            text.replace("\n", "\r").encode(),
            text.replace("\n", "\r\n").encode(),
            bad,
            data + b"\0" * 10,
        )
    )


def _punctuation(data: bytes, random: Random) -> bytes:
    """Remove or repeat a character of the syntax."""
    places = [i for i, byte in enumerate(data) if byte in b"{}[]:,;<>/\"'= -#&*|\n"]
    if not places:
        return data
    at = random.choice(places)
    return data[:at] + random.choice((b"", data[at : at + 1] * 2, b"\t", b"}")) + data[at + 1 :]


_EDITS: tuple[Callable[[bytes, Random], bytes], ...] = (
    *(_swap_token, _swap_token, _swap_token, _swap_token, _swap_two, _lines, _nest, _encode),
    _punctuation,
)
