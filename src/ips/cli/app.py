"""The `ips` command: its sub-commands, its messages and its exit codes."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text
from typer import Option
from typer.core import TyperGroup

from ips.errors import REMEDIES, ImageError, IPSError, PatchError, Terminated, because
from ips.work.place import LOCAL, is_address

out = Console()
err = Console(stderr=True)


class ErrorReporter(TyperGroup):
    """Command group that prints user errors as one sentence and exits with a non-zero code."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Let ``--ray`` without an address mean a cluster on this machine."""
        words = []
        for word, following in pairwise([*args, ""]):
            words += [word, LOCAL] if word == "--ray" and not is_address(following) else [word]
        return super().parse_args(ctx, words)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Terminated as ended:
            print_message(": ".join(["terminated", *filter(None, [ended.hint])]))
            raise typer.Exit(ended.code) from None
        except (IPSError, KeyboardInterrupt, OSError) as error:
            if ctx.params["debug"]:
                raise
            if isinstance(error, KeyboardInterrupt):
                print_message(": ".join(["interrupted", *map(str, error.args)]))
                raise typer.Exit(130) from None
            if isinstance(error, IPSError):
                fail(str(error))
            if not error.filename and error.errno not in REMEDIES:
                raise
            reason = because(error, remedy="check the path")
            fail(f"{error.filename or 'a file'}: cannot be read or written {reason}")


app = typer.Typer(
    name="ips",
    help="Classify images of any size: find the few patches that matter and learn from those.",
    cls=ErrorReporter,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def _options(
    debug: Annotated[bool, Option("--debug", help="Show the traceback of errors")] = False,
) -> None:
    """Define the global options, which ErrorReporter reads."""


@contextmanager
def hints(
    interrupted: str = "run the same command again to continue", *, skip_errors: bool = True
) -> Iterator[None]:
    """Add a hint to an exception: how to continue after Ctrl-C, or how to skip a broken slide.

    SIGTERM ends the command like Ctrl-C.

    Args:
        interrupted: hint after Ctrl-C or SIGTERM.
        skip_errors: whether ``--skip-errors`` was given; if not, the error suggests it.
    """
    try:
        with _raising_at_sigterm():
            yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(interrupted) from None
    except Terminated:
        raise Terminated(interrupted) from None
    except (ImageError, PatchError) as error:
        if skip_errors:
            raise
        raise type(error)(f"{error} (or continue without it: --skip-errors)") from error


@contextmanager
def _raising_at_sigterm() -> Iterator[None]:
    """Raise `Terminated` at SIGTERM, so that files are closed and the last line says what to do."""

    def terminate(*args: object) -> NoReturn:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def print_message(text: str) -> None:
    """Print plain text to stderr; brackets in file names are not parsed as markup."""
    err.print(text, markup=False, highlight=False, soft_wrap=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table to stdout; brackets are not parsed as markup, and long cells wrap."""
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
    # PyTorch's C++ warnings are for developers, such as one about find_unused_parameters.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    # Operations that Apple's GPU lacks run on the CPU.
    os.environ.setdefault("PYTORCH_ENABLE_MPS_FALLBACK", "1")
    args = sys.argv[1:]
    if "--debug" in args:
        args = ["--debug", *(arg for arg in args if arg != "--debug")]
    app(args)
