"""Messages, tables and exit codes that all commands share."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest
from rich.console import Console

from ips.cli.app import print_table
from ips.progress import progress_bar
from tests.command import Outcome


def test_a_table_prints_brackets_and_long_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(["[/x]", "scan[old]"], [["[/y]", ":100:"], ["folder" * 20 + "end", ""]])
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("[/x]", "scan[old]", "[/y]", ":100:", "end"))


def test_a_progress_bar_prints_brackets() -> None:
    shown = io.StringIO()
    with progress_bar(Console(file=shown, width=200)) as bar:
        bar.add_task("scan[old].png", total=1, note="[/x]")
    assert "scan[old].png" in shown.getvalue()
    assert "[/x]" in shown.getvalue()


def test_debug_shows_the_traceback_anywhere_on_the_line() -> None:
    words = [sys.executable, "-c", "from ips.cli import main; main()"]
    words += ["predict", "nowhere", "a.png", "--shard", "3/2"]  # refused before PyTorch is loaded
    plain = subprocess.run(words, capture_output=True, text=True)
    debug = subprocess.run([*words, "--debug"], capture_output=True, text=True)
    assert plain.returncode != 0
    assert "Traceback" not in plain.stderr
    assert plain.stderr.startswith("ips: --shard 3/2: ")
    assert debug.returncode != 0
    assert "Traceback" in debug.stderr


@pytest.mark.parametrize(("given", "used"), [(None, "5000"), ("7", "7")])
def test_threads_soon_sleep_while_they_wait_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, given: str | None, used: str
) -> None:
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    if given is not None:
        monkeypatch.setenv("GOMP_SPINCOUNT", given)
    words = "import os, sys, ips.cli; print(os.environ['GOMP_SPINCOUNT'], 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [used, "False"]


def test_a_shell_completes_commands_and_options() -> None:
    command = [
        sys.executable,
        "-c",
        "import sys; sys.argv[0] = 'ips'; from ips.cli import main; main()",
    ]
    for line, found in (("ips tu", "tune"), ("ips train --dev", "--device")):
        number = str(len(line.split()) - 1)
        told = {"COMP_WORDS": line, "COMP_CWORD": number, "_IPS_COMPLETE": "complete_bash"}
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **told})
        assert done.stdout.split() == [found], done.stderr


def test_without_words_there_is_help() -> None:
    done = Outcome()
    assert "Usage: ips" in done.out + done.err
