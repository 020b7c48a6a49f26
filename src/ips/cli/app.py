"""The `ips` command: its sub-commands, and how mistakes are told."""

from __future__ import annotations

import errno
import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, ParamSpec

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from ips.errors import IPSError

P = ParamSpec("P")

app = typer.Typer(
    name="ips",
    help="Recognition in images of any size: find the few patches that matter, learn from those.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
out = Console()
err = Console(stderr=True)
_state = {"debug": False}


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    _state["debug"] = debug


def told(command: Callable[P, None]) -> Callable[P, None]:
    """A command whose user's mistakes end in one sentence and a non-zero exit."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except IPSError as error:
            if _state["debug"]:
                raise
            fail(str(error))
        except KeyboardInterrupt as stop:
            if _state["debug"]:
                raise
            say(": ".join(["interrupted", *map(str, stop.args)]))  # what is kept, if anything
            raise typer.Exit(130) from None
        except OSError as error:
            disk = error.errno in (errno.ENOSPC, errno.EACCES, errno.EROFS)
            if _state["debug"] or not (error.filename or disk):
                raise
            fail(f"{error.filename or 'the disk'}: {(error.strerror or 'error').lower()}")

    return run


def say(text: str) -> None:
    """A plain sentence to the terminal; names of files keep their brackets."""
    err.print(text, markup=False, highlight=False, soft_wrap=True)


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table on the terminal; names of files and tasks keep their brackets and their ends."""
    table = Table(*(Column(Text(name), overflow="fold") for name in columns))
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    out.print(table)


def fail(text: str) -> None:
    """Tell what is wrong and leave."""
    say(f"ips: {text}")
    raise typer.Exit(1)


def main() -> None:
    """Entry point; ``--debug`` may stand anywhere."""
    words = sys.argv[1:]
    if "--debug" in words:
        words = ["--debug", *(word for word in words if word != "--debug")]
    app(words)


# Each module adds its commands to `app` when it is imported.
from ips.cli import (  # noqa: E402, F401
    bench,
    data,
    data_camelyon16,
    data_slides,
    experiment,
    explain,
    predict,
    pretrain,
    recipes,
    report,
    slides,
    slides_features,
    train,
    view,
)
