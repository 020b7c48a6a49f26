"""Corrupted files of every family give their content or a clear error; faults are recognised."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from ips.errors import DataError

if sys.platform == "win32":
    pytest.skip("fuzzing needs fork", allow_module_level=True)

from fuzz.child import Job, Outcome, Verdict, expected_reading, run
from fuzz.family import Family, Reading, Seed, Variant
from fuzz.text import edit_yaml

TOP = Path(__file__).parents[1]


def test_a_file_of_every_family_and_all_stored_files(tmp_path: Path) -> None:
    """In a process of its own, because it forks; `make fuzz` reads many more."""
    command = [sys.executable, "-m", "fuzz", "--count", "1", "--stored", "--no-store"]
    path = os.pathsep.join([str(TOP / "src"), str(TOP), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [*command, "--out", str(tmp_path)],
        cwd=TOP,
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    report = json.loads((tmp_path / "report.json").read_text())
    assert done.returncode == 0, report["faults"]
    assert len(report["families"]) > 40
    assert all(sum(counts.values()) >= 1 for counts in report["families"].values())
    assert "| all |" in (tmp_path / "report.md").read_text()


def read(path: Path) -> Reading:
    """Reads a file that tells what to do."""
    word, _, rest = path.read_text().partition(" ")
    match word:
        case "unclear":
            raise DataError(rest)
        case "clear":
            raise DataError(f"{path}: {rest}")
        case "fail":
            raise KeyError(rest)
        case "crash":
            ctypes.string_at(0)
        case "loop":
            while True:
                pass
        case "wait":
            time.sleep(1000)
        case "grow":
            bytearray(2**40)
    return Reading(len(word), rest)


def verdicts(*texts: str, monkeypatch: pytest.MonkeyPatch) -> list[Verdict]:
    monkeypatch.setattr("fuzz.child._CPU_SECONDS", 0.2)
    monkeypatch.setattr("fuzz.child._WALL_SECONDS", 1.0)
    seed = Seed("plain", "a_file.txt", b"word rest", read)
    job = Job(
        Family("family", (seed,)),
        range(len(texts)),
        lambda number: Variant(seed, texts[number].encode(), edited=False),
    )
    expected = {("family", "plain"): Reading(4, "rest")}
    found = list(run(iter([job]), expected, parallel=2))
    assert [number for _, number, _ in found] == list(range(len(texts)))
    return [verdict for _, _, verdict in found]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_every_outcome_is_recognised_and_the_rest_is_still_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected: list[tuple[str, Outcome]] = [
        ("word rest", "ok"),
        ("clear why", "error"),
        ("word other", "values"),
        ("words rest", "geometry"),
        ("unclear why", "traceback"),
        ("clear " + 500 * "x", "traceback"),
        ("fail why", "traceback"),
        ("grow", "traceback"),
        ("crash", "crash"),
        ("loop", "hang"),
        ("wait", "hang"),
        ("word rest", "ok"),
    ]
    found = verdicts(*(text for text, _ in expected), monkeypatch=monkeypatch)
    assert [verdict.outcome for verdict in found] == [outcome for _, outcome in expected]
    assert found[6].place == "KeyError test_fuzz.py:read"
    assert "in read" in found[8].detail  # where it crashed


def test_a_valid_file_must_be_read_twice_the_same(tmp_path: Path) -> None:
    seed = Seed("plain", "a.txt", b"word rest", read)
    assert expected_reading(seed, tmp_path / "valid") == Reading(4, "rest")
    readings = iter(range(2))
    random = Seed("random", "a.txt", b"", lambda path: Reading(next(readings)))
    with pytest.raises(ValueError, match="two readings of one valid file differ"):
        expected_reading(random, tmp_path / "valid")


def test_the_same_number_gives_the_same_file() -> None:
    family = Family("family", (Seed("plain", "a.txt", bytes(1000), read),), edit=edit_yaml)
    first, again = ([family.variant(n, seed=0).data for n in range(50)] for _ in range(2))
    other = [family.variant(n, seed=1).data for n in range(50)]
    assert first == again != other
    edited = Counter(family.variant(n, seed=0).edited for n in range(50))
    assert min(edited.values()) > 10
