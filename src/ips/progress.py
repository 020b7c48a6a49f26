"""The progress bar of long-running commands."""

from __future__ import annotations

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


def print_without_terminal(progress: Progress, text: str) -> None:
    """Print a line where the bar is not visible, such as in a log file."""
    if not progress.console.is_terminal:
        progress.console.print(text, markup=False, highlight=False, soft_wrap=True)


def progress_bar(console: Console | None, *, transient: bool = False) -> Progress:
    """A progress bar with count, elapsed and remaining time; a ``transient`` bar disappears.

    Without a console, nothing is shown. Text is not parsed as markup: a file may be called
    ``scan[old].png``.
    """
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        console=console or Console(quiet=True),
        transient=transient,
    )
