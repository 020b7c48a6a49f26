"""`ips init` and `ips check`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from ips import api
from ips.cli.app import app, err, print_message, print_table
from ips.cli.options import Recipe, Settings


@app.command()
def init(
    place: Annotated[
        Path,
        Argument(
            metavar="FOLDER_OR_CSV",
            help="Folder of images, slides or feature files, or a CSV that lists them",
        ),
    ],
    label: Annotated[
        list[str] | None, Option(metavar="COLUMN", help="Column of labels; repeatable")
    ] = None,
    path: Annotated[
        str | None,
        Option(metavar="COLUMN", help="Column of files, or none to take sub-folders as labels"),
    ] = None,
    group: Annotated[
        str | None,
        Option(metavar="COLUMN", help="Column of patients or other groups, or none for no groups"),
    ] = None,
    images: Annotated[
        Path | None, Option(metavar="DIR", help="Folder of the files; that of the CSV by default")
    ] = None,
    splits: Annotated[Path | None, Option(metavar="CSV", help="A splits_*.csv of CLAM")] = None,
    slide_table: Annotated[
        Path | None, Option(metavar="CSV", help="Slide table of STAMP, beside its clinical table")
    ] = None,
    object_size: Annotated[
        int | None,
        Option(
            "--object",
            min=1,
            metavar="PX",
            help="Usual size of what matters in an image, in pixels",
        ),
    ] = None,
    minutes: Annotated[
        float, Option(min=1, help="Time that the training may take on this machine")
    ] = 30,
    settings: Settings = None,
    out: Annotated[
        Path | None,
        Option(metavar="YAML", help="File to write; named like FOLDER_OR_CSV by default"),
    ] = None,
) -> None:
    """Look at your images and labels, and write a config for them with a reason for each value."""
    new = api.init(
        place,
        out=out,
        labels=label or (),
        path=path,
        group=group,
        images=images,
        splits=splits,
        slide_table=slide_table,
        object_size=object_size,
        minutes=minutes,
        settings=settings or (),
        ask=_ask if sys.stdin.isatty() and err.is_terminal else None,
        console=err,
    )
    for note in new.notes:
        print_message(note)
    for warning in new.warnings:
        print_message(f"warning: {warning}")
    beside = f" and {new.table}" if new.table else ""
    print_message(f"wrote {new.path}{beside}; look at {new.path}, then run")
    for command in ("check", "train"):
        typer.echo(f"ips {command} {shlex.quote(str(new.path))}")


def _ask(question: str, names: Sequence[str]) -> str:
    while True:
        answer: str = typer.prompt(f"{question} ({', '.join(names)})", err=True)
        if answer in names:
            return answer


@app.command()
def check(config: Recipe, settings: Settings = None) -> None:
    """Open every file of a config once, and report all problems of files, labels and splits.

    The exit code is 1 if a problem would stop or spoil a training.
    """
    report = api.check(config, settings=settings or (), console=err)
    if report.problems:
        rows = [(problem.weight, problem.text) for problem in report.ordered()]
        print_table(["", "problem"], rows)
    if report.facts:
        print_table(["", "data"], list(report.facts.items()))
    if report.errors:
        count = report.error_count
        these = "1 error: correct it" if count == 1 else f"{count} errors: correct them"
        print_message(f"{these} before training")
        raise typer.Exit(1)
    print_message(f"no errors; next: ips train {shlex.quote(config)}")
