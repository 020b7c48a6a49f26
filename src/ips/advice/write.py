"""Write a config as YAML with the reason for each value, and a table beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import wrap

from ips.advice.choices import Choice
from ips.advice.found import FoundData
from ips.config_io import inline
from ips.data.table import write_csv

_WIDTH = 100


def commented_yaml(choices: Sequence[Choice], head: Sequence[str]) -> str:
    """Settings as YAML, with their reasons as comments.

    Args:
        head: sentences for the top of the file.
    """
    lines = [
        part
        for line in head
        for part in wrap(line, _WIDTH, initial_indent="# ", subsequent_indent="#   ")
    ]
    return "".join(f"{line}\n" for line in [*lines, *_lines(choices, depth=0)])


def _lines(choices: Sequence[Choice], *, depth: int) -> Iterator[str]:
    indent = "  " * depth
    groups: dict[str, list[Choice]] = {}
    for choice in choices:
        groups.setdefault(choice.key[depth], []).append(choice)
    for name, group in groups.items():
        if len(group[0].key) > depth + 1:
            yield f"{indent}{inline(name)}:"
            yield from _lines(group, depth=depth + 1)
            continue
        (choice,) = group
        line = f"{indent}{inline(name)}: {inline(choice.value)}"
        comment = f"# {' '.join(choice.reason.split())}"  # a file name may hold a line break
        if not choice.reason:
            yield line
        elif len(line) + len(comment) + 2 <= _WIDTH:
            yield f"{line}  {comment}"
        else:
            yield f"{indent}{comment}"
            yield line


def table_columns(data: FoundData) -> dict[str, str]:
    """Names of the columns of files and, if there are any, of groups: ``data.*`` of a config."""
    names = ["path", *["group"] * any(row.group for row in data.rows)]
    return {name: _unused(name, data) for name in names}


def write_table(path: Path, data: FoundData) -> None:
    """Write a table of images, their labels, groups and splits; paths are relative to it."""
    columns = table_columns(data)
    divided = any(row.split for row in data.rows)
    folder = path.resolve().parent
    rows = []
    for number, row in enumerate(data.rows):
        file = row.path.resolve()
        name = file.relative_to(folder) if file.is_relative_to(folder) else file
        cells = {columns["path"]: name.as_posix(), **row.labels}
        if "group" in columns:
            cells[columns["group"]] = row.group or f"unknown {number}"  # a patient of its own
        rows.append({**cells, **({"split": row.split or ""} if divided else {})})
    write_csv(path, list(rows[0]), [list(row.values()) for row in rows])


def _unused(name: str, data: FoundData) -> str:
    """A name of a column that is no task."""
    return name if name not in data.tasks else _unused(f"{name}_", data)
