"""The progress of long-running commands: a bar, or lines where the bar is not visible."""

from __future__ import annotations

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
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


def advance(progress: Progress, line: TaskID) -> None:
    """Advance a bar by one step; where it is not visible, print a line after every tenth."""
    progress.advance(line)
    task = next(task for task in progress.tasks if task.id == line)
    done, total = int(task.completed), int(task.total or 0)
    if total and 10 * done // total > 10 * (done - 1) // total:
        left = time_left((task.elapsed or 0.0) / done * (total - done))
        print_without_terminal(progress, f"{task.description}: {done:,} of {total:,}{left}")


def time_left(seconds: float) -> str:
    """The end of a line of progress; nothing at the end of the work.

    >>> time_left(75.2), time_left(0)
    (', 1 min 15 s left', '')
    """
    return f", {duration(seconds)} left" if seconds else ""


def duration(seconds: float) -> str:
    """Seconds in readable units.

    >>> duration(3.21), duration(75), duration(7384)
    ('3.2 s', '1 min 15 s', '2 h 3 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def rough_duration(seconds: float) -> str:
    """A duration in one unit, for estimates.

    >>> rough_duration(4), rough_duration(75), rough_duration(5400)
    ('4 s', '1 min', '1.5 h')
    """
    if seconds < 60:
        return f"{max(round(seconds), 1)} s"
    return f"{round(seconds / 60)} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
