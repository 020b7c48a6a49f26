"""From a folder or table to a config that trains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from ips.advice.choices import Choice, nested
from ips.advice.columns import Ask
from ips.advice.cost import Cost, available_bytes, measure
from ips.advice.folders import find_data
from ips.advice.found import FoundData, Hints
from ips.advice.propose import propose
from ips.advice.request import config_file
from ips.advice.survey import Survey, survey
from ips.advice.write import commented_yaml, table_columns, write_table
from ips.config_io import parse_config
from ips.errors import ConfigError, DataError
from ips.files import write_text
from ips.progress import progress_bar

_MOST_EXCLUDED = 50  # files; with more, a table without them is written


@dataclass(frozen=True)
class NewConfig:
    """A config that was written.

    Attributes:
        path: the YAML file.
        table: the table beside it; None if the config uses the user's own.
        notes: what was found and decided.
        warnings: what may go wrong.
    """

    path: Path
    table: Path | None
    notes: list[str]
    warnings: list[str]


def write_config(
    place: Path,
    *,
    out: Path | None = None,
    hints: Hints | None = None,
    object_size: int | None = None,
    minutes: float = 30,
    settings: Sequence[str] = (),
    ask: Ask | None = None,
    console: Console | None = None,
) -> NewConfig:
    """Look at images and their labels, and write a config for them.

    Args:
        place: folder of images, or CSV.
        out: YAML file to write; by default named like ``place``, in the current folder.
        hints: what is known about the data.
        object_size: usual size in pixels of what matters in an image.
        minutes: time that the training may take on this machine.
        settings: settings that override the chosen ones, such as ``train.epochs=5``.
        ask: asks the user where the data leaves something open.
    """
    out = config_file(place, out)
    table = out.with_name(f"{out.stem}-images.csv")
    data = find_data(place, hints or Hints(), ask=ask)
    found = survey([row.path for row in data.rows], progress_bar(console, transient=True))
    data = _readable(data, found, place)
    own = data.settings is not None and len(data.left_out) <= _MOST_EXCLUDED
    if not own and table.exists():
        raise ConfigError(f"{table} exists already: remove it, or give another --out")
    if data.boxes is not None and not own:
        note = f"{data.boxes.table.name} sets the patch size, but has other paths than {table.name}"
        data = replace(data, notes=[*data.notes, f"{note}, so attention is not compared with it"])
    proposal = propose(
        data,
        found,
        _own_table(data) if own else _new_table(data, table),
        lambda values: _measure(values, found.typical),
        minutes=minutes,
        memory=available_bytes(),
        object_size=object_size,
        overrides=settings,
    )
    parse_config(nested(proposal.choices), source=str(out))
    head = [
        f"For {len(found.facts)} {found.kind} of {place}, by `ips init`. Change any value;",
        "`ips recipes show megapixel-mnist` lists all settings with their help.",
        *(f"- {fact}" for fact in proposal.facts),
        *(f"- {warning}" for warning in proposal.warnings),
    ]
    if not own:
        write_table(table, data)
    write_text(out, commented_yaml(proposal.choices, head))
    return NewConfig(out, None if own else table, [*data.notes, *proposal.facts], proposal.warnings)


def _readable(data: FoundData, found: Survey, place: Path) -> FoundData:
    """The data without files that cannot be used."""
    bad = found.unreadable
    if len(bad) > len(data.rows) / 2:
        reason = next(iter(bad.values()))
        raise DataError(
            f"{place}: {len(bad)} of {len(data.rows)} files cannot be used, the first because: "
            f"{reason}"
        )
    if not bad:
        return data
    left_out = {_cell(path, data): reason for path, reason in bad.items()}
    first = next(iter(bad.values()))
    more = f", and {len(bad) - 1} more" if len(bad) > 1 else ""
    return replace(
        data,
        rows=[row for row in data.rows if row.path not in bad],
        left_out=data.left_out | left_out,
        notes=[*data.notes, f"{len(bad)} files cannot be used and are left out: {first}{more}"],
    )


def _cell(path: Path, data: FoundData) -> str:
    """A path as the user's table writes it."""
    settings = data.settings or {}
    root = Path(str(settings.get("root", Path(str(settings.get("csv", ""))).parent)))
    return (path.relative_to(root) if path.is_relative_to(root) else path).as_posix()


def _own_table(data: FoundData) -> list[Choice]:
    """The settings of the user's own table."""
    assert data.settings is not None
    reasons = {
        "csv": "your table",
        "root": "the folder that its paths are relative to",
        "path": "its column of files",
        "group": "images of one group, such as a patient, stay in one split",
        "objects": "boxes, to measure whether attention is on them; not used in training",
    }
    choices = [Choice(("data", "kind"), "table")]
    for key, value in data.settings.items():
        plain = _portable(value) if isinstance(value, Path) else value
        choices.append(Choice(("data", key), plain, reasons[key]))
    if data.left_out:
        name, reason = next(iter(data.left_out.items()))
        choices.append(
            Choice(("data", "exclude"), list(data.left_out), f"left out: {name} {reason}")
        )
    return choices


def _new_table(data: FoundData, table: Path) -> list[Choice]:
    """The settings of the table that is written beside the config."""
    reasons = {"group": "images of one group, such as a patient, stay in one split"}
    return [
        Choice(("data", "kind"), "table"),
        Choice(("data", "csv"), _portable(table), "written beside this file"),
        *(
            Choice(("data", key), name, reasons.get(key, ""))
            for key, name in table_columns(data).items()
        ),
    ]


def _portable(path: Path) -> str:
    """A path relative to the current folder if it is inside, as commands expect it."""
    here, absolute = Path.cwd(), path.resolve()
    return (absolute.relative_to(here) if absolute.is_relative_to(here) else absolute).as_posix()


def _measure(values: Mapping[str, Any], path: Path) -> Cost:
    """Measure settings on one image, before the table is written."""
    return measure(parse_config(values, source="the proposed config"), path)
