"""The `ips` command: its sub-commands, its messages and its exit codes."""

from __future__ import annotations

import errno
import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, NoReturn, ParamSpec

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text
from typer import Option

from ips.errors import ImageError, IPSError, PatchError

P = ParamSpec("P")

app = typer.Typer(
    name="ips",
    help="Classify images of any size: find the few patches that matter and learn from those.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
out = Console()
err = Console(stderr=True)
_state = {"debug": False}


@app.callback()
def _options(
    debug: Annotated[bool, Option("--debug", help="Show the traceback of errors")] = False,
) -> None:
    _state["debug"] = debug


def report_errors(command: Callable[P, None]) -> Callable[P, None]:
    """Wrap a command so that user errors print one sentence and exit with a non-zero code."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except IPSError as error:
            if _state["debug"]:
                raise
            fail(str(error))
        except KeyboardInterrupt as interrupt:
            if _state["debug"]:
                raise
            print_message(": ".join(["interrupted", *map(str, interrupt.args)]))
            raise typer.Exit(130) from None
        except OSError as error:
            disk = error.errno in (errno.ENOSPC, errno.EACCES, errno.EROFS)
            if _state["debug"] or not (error.filename or disk):
                raise
            fail(f"{error.filename or 'the disk'}: {(error.strerror or 'error').lower()}")

    return run


@contextmanager
def interrupt_hint(hint: str = "run the same command again to continue") -> Iterator[None]:
    """Add to a Ctrl-C inside the block how to continue."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(hint) from None


@contextmanager
def skip_errors_hint(*, skip_errors: bool) -> Iterator[None]:
    """Add to the error of an unreadable slide that ``--skip-errors`` continues without it."""
    try:
        yield
    except (ImageError, PatchError) as error:
        if skip_errors:
            raise
        raise type(error)(f"{error} (or continue without it: --skip-errors)") from error


def print_message(text: str) -> None:
    """Print plain text to stderr; brackets in file names are not markup."""
    err.print(text, markup=False, highlight=False, soft_wrap=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table to stdout; brackets are not markup, and long cells are wrapped, not cut."""
    table = Table(*(Column(Text(name), overflow="fold") for name in columns))
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    out.print(table)


def fail(text: str) -> NoReturn:
    """Print an error message and exit with code 1."""
    print_message(f"ips: {text}")
    raise typer.Exit(1)


def main() -> None:
    """Entry point; ``--debug`` is accepted anywhere on the command line."""
    words = sys.argv[1:]
    if "--debug" in words:
        words = ["--debug", *(word for word in words if word != "--debug")]
    app(words)
