"""The command line as a person has it, in this process."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from ips.cli import app


class Outcome:
    """What came of a command: its exit code, and what it said."""

    def __init__(self, *words: str | Path) -> None:
        command = [str(word) for word in words]
        result = CliRunner(env={"COLUMNS": "200"}).invoke(app, command, catch_exceptions=False)
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
