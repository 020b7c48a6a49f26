"""The command line as a person has it, in this process."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from typer import testing

from ips.cli import app

# Building all commands from their signatures takes longer than most of them: once is enough.
testing._get_command = cache(testing._get_command)  # type: ignore[attr-defined]


class Outcome:
    """What came of a command: its exit code, and what it said."""

    def __init__(self, *words: str | Path) -> None:
        command = [str(word) for word in words]
        runner = testing.CliRunner(env={"COLUMNS": "200"})
        result = runner.invoke(app, command, catch_exceptions=False)
        self.code, self.out, self.err = result.exit_code, result.stdout, result.stderr

    @property
    def sentence(self) -> str:
        """The one sentence that a mistake gets."""
        assert self.code == 1, self.out + self.err
        assert "Traceback" not in self.err
        lines = [line for line in self.err.splitlines() if line.startswith("ips: ")]
        assert len(lines) == 1, self.err
        return lines[0].removeprefix("ips: ")


def refused(*words: str | Path) -> str:
    """The one sentence that these words get."""
    return Outcome(*words).sentence
