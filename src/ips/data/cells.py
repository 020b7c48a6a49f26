"""The cells of a CSV, as spreadsheet programs and scripts write it.

The separator can be a comma, a semicolon or a tab. A first line such as ``sep=;``, by which Excel
knows the separator, is understood. The text can be UTF-8 or, with a byte order mark, UTF-16. If it
is neither, it is read as Windows-1252, which Excel writes in Western Europe and America, and
`encoding_note` says so.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from pathlib import Path

from ips.errors import DataError, because, shown

_REMEDY = "save it as CSV UTF-8"
_STATED_SEPARATOR = re.compile(r'"?sep=([,;|\t])"?\s*', re.I)
_BETWEEN_WORDS = re.compile(r'[ \t\r\n,;|"]+')


def is_table(path: Path) -> bool:
    """Whether a file can be a table, by its ending; Excel saves "Unicode text" as .txt."""
    return path.suffix.lower() in (".csv", ".tsv", ".txt")


def read_lines(table: Path) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """The column names, and the cells of each line that is not blank, with its line number."""
    text, _ = _read_text(table)
    file = io.StringIO(text, newline="")
    first = file.readline()
    skipped = 0
    if stated := _STATED_SEPARATOR.fullmatch(first):
        separator, skipped = stated[1], 1
    else:
        separator = max(",;\t", key=first.count)
        file.seek(0)
    try:
        reader = csv.reader(file, delimiter=separator, strict=True)
        lines = [(skipped + reader.line_num, [cell.strip() for cell in row]) for row in reader]
    except csv.Error as error:
        raise DataError(f"{table}: not a readable CSV {because(error, remedy=_REMEDY)}") from error

    lines = [(number, cells) for number, cells in lines if any(cells)]
    if len(lines) < 2:
        raise DataError(f"{table}: no images in it: write a header line and a line per image")
    (_, columns), *rest = lines
    for number, cells in rest:
        if len(cells) != len(columns):
            remedy = "put quotes around a cell that contains the separator"
            if len(cells) < len(columns):
                remedy = "add the missing ones, empty if need be"
            raise DataError(
                f"{table}, line {number}: {len(cells)} cells under {len(columns)} columns: {remedy}"
            )
    return columns, [(number, dict(zip(columns, cells, strict=True))) for number, cells in rest]


def encoding_note(table: Path) -> str | None:
    """A sentence if the encoding of a table is a guess, so that its letters may be wrong."""
    text, encoding = _read_text(table)
    if encoding != "cp1252":
        return None
    word = next(word for word in _BETWEEN_WORDS.split(text) if not word.isascii())
    return (
        f"{table}: not UTF-8, so it is read as Windows-1252: if {shown(word)} looks wrong, "
        f"{_REMEDY}"
    )


def _read_text(table: Path) -> tuple[str, str]:
    """The text of a table, and its encoding."""
    try:
        data = table.read_bytes()
        encoding = _encoding(data)
        text = data.decode(encoding)
        if "\0" in text:  # UTF-16 without its mark, or no text
            raise ValueError("it contains null characters")
    except FileNotFoundError as error:
        where = "" if table.is_absolute() else f", seen from {Path.cwd()}"
        raise DataError(f"{table}: no such table{where}: check the path") from error
    except UnicodeDecodeError as error:
        reason = "neither UTF-8 nor UTF-16 nor Windows-1252"
        raise DataError(f"{table}: not a readable CSV ({reason}): {_REMEDY}") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{table}: not a readable CSV {because(error, remedy=_REMEDY)}") from error
    return text, encoding


def _encoding(data: bytes) -> str:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    try:
        data.decode()
    except UnicodeDecodeError:
        if data.decode(errors="ignore").isascii():  # otherwise rather damaged UTF-8
            return "cp1252"
    return "utf-8-sig"
