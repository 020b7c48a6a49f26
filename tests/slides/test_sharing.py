"""Claims: one live process at a time works on a slide."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ips.slides import sharing
from ips.slides.sharing import Claim, ClaimLostError, SharedFolder, SlideState


@pytest.fixture
def shared(tmp_path: Path) -> SharedFolder:
    return SharedFolder(tmp_path)


def claimed(shared: SharedFolder, name: str = "a", age: float = 0, **changes: Any) -> Claim:
    """A claim of another process, refreshed ``age`` seconds ago."""
    claim = Claim(shared.folder, name)
    assert claim.acquire()
    owner = claim.owner()
    assert owner is not None
    claim.file.write_text(json.dumps(owner | changes))
    os.utime(claim.file, (time.time() - age,) * 2)
    return claim


def dead_process() -> int:
    """The number of a dead process."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def names(shared: SharedFolder) -> list[str]:
    return sorted(path.name for path in shared.folder.iterdir())


def test_only_one_process_can_claim_a_slide(shared: SharedFolder) -> None:
    claim = shared.claim("a")
    assert claim is not None
    assert shared.claim("a") is None
    assert shared.claim("b") is not None
    claim.release()
    assert names(shared) == ["b.claim"]
    assert shared.claim("a") is not None


@pytest.mark.parametrize(
    ("age", "changes", "stale"),
    [
        (0, {"pid": os.getppid(), "id": "x"}, False),  # a live process of this machine
        (0, {"host": "elsewhere", "pid": 1}, False),
        (500, {"host": "elsewhere", "pid": 1}, False),
        (700, {"host": "elsewhere", "pid": 1}, True),  # not refreshed for more than ten minutes
        (700, {"pid": os.getppid(), "id": "x"}, True),
        (0, {"id": "of an earlier process"}, True),  # with the number of this one
        (0, {"namespace": "pid:[1]", "id": "x"}, False),  # the same number in another container
    ],
)
def test_a_claim_holds_while_its_process_lives(
    shared: SharedFolder, age: float, changes: dict[str, Any], stale: bool
) -> None:
    claimed(shared, age=age, **changes)
    assert shared.states()[0].state == ("pending" if stale else "working")
    taken = shared.claim("a")
    assert (taken is not None) == stale
    assert taken is None or taken.is_mine()
    assert names(shared) == ["a.claim"]


@pytest.mark.skipif(sys.platform == "win32", reason="a dead process is not detected there")
def test_the_claim_of_a_killed_process_is_taken_over_at_once(shared: SharedFolder) -> None:
    claimed(shared, pid=dead_process(), id="x")
    (shared.folder / ".a.h5.0123abcd.part").touch()  # its temporary file
    (shared.folder / ".ab.h5.0123abcd.part").touch()  # of another slide
    assert shared.claim("a") is not None
    assert names(shared) == [".ab.h5.0123abcd.part", "a.claim"]


def test_an_unreadable_claim_holds_until_it_is_stale(shared: SharedFolder) -> None:
    claim = Claim(shared.folder, "a")
    claim.file.touch()
    assert shared.claim("a") is None
    assert shared.states() == [SlideState("a", "working", "process unknown on another machine")]
    os.utime(claim.file, (0, 0))
    assert shared.claim("a") is not None


@pytest.mark.parametrize("text", [b"\xff", b"[" * 20_000, b"[1]", b'{"host": "\xff"}'])
def test_a_damaged_claim_is_like_an_empty_one(shared: SharedFolder, text: bytes) -> None:
    (shared.folder / "a.claim").write_bytes(text)
    assert shared.states() == [SlideState("a", "working", "process unknown on another machine")]
    assert shared.claim("a") is None


@pytest.mark.parametrize("pid", [10**30, -1, 0, "7", None])
def test_a_process_number_that_no_process_has_is_not_asked_for(
    shared: SharedFolder, pid: object
) -> None:
    claimed(shared, pid=pid)
    assert shared.claim("a") is None


def test_notes_are_one_line_whatever_the_files_contain(shared: SharedFolder) -> None:
    claimed(shared, "a", host="x\ny" * 1000, pid=[1] * 1000)
    (shared.folder / "b.failed").write_bytes(b"b.svs: \xff\x1b[31m\nsecond line")
    for state in shared.states():
        assert state.note.isprintable()
        assert len(state.note) < 400


def test_a_claim_that_another_process_just_took_over_is_given_back(
    shared: SharedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes see the claim of a dead one; the slower must not take the faster one's."""
    claim = claimed(shared, host="elsewhere", age=700)
    is_stale = Claim.is_stale

    def slow(self: Claim, owner: dict[str, Any]) -> bool:
        stale = is_stale(self, owner)
        self.file.write_text(json.dumps(owner | {"host": "the faster one"}))
        return stale

    monkeypatch.setattr(Claim, "is_stale", slow)
    assert shared.claim("a") is None
    assert json.loads(claim.file.read_text())["host"] == "the faster one"
    assert names(shared) == ["a.claim"]


def test_a_claim_that_another_process_takes_during_the_rename_is_lost(
    shared: SharedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner removes all leftovers of the slide, also the file that we just renamed."""
    claimed(shared, host="elsewhere", age=700)
    read_owner, faster = sharing._read_owner, []

    def slow(file: Path) -> dict[str, Any] | None:
        if file.suffix == ".part":  # the claim that was renamed away
            faster.append(shared.claim("a"))
            assert not file.exists()
        return read_owner(file)

    monkeypatch.setattr(sharing, "_read_owner", slow)
    assert shared.claim("a") is None
    assert [claim is not None and claim.is_mine() for claim in faster] == [True]
    assert names(shared) == ["a.claim"]


def test_claims_are_exclusive_on_a_file_system_without_links(
    shared: SharedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*paths: Path) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    assert shared.claim("a") is not None
    monkeypatch.setattr(Claim, "owner", lambda self: None)  # as if another made it just now
    assert shared.claim("a") is None
    assert names(shared) == ["a.claim"]


def test_refresh_renews_a_claim_or_reports_its_loss(
    shared: SharedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = shared.claim("a")
    assert claim is not None
    os.utime(claim.file, (0, 0))
    claim.refresh()  # too early
    assert claim.file.stat().st_mtime == 0
    monkeypatch.setattr(sharing, "_REFRESH_SECONDS", 0)
    claim.refresh()
    assert time.time() - claim.file.stat().st_mtime < 60
    claim.file.write_text('{"host": "elsewhere"}')
    with pytest.raises(ClaimLostError):
        claim.refresh()
    claim.release()  # the other process keeps it
    assert names(shared) == ["a.claim"]


def test_finished_slides_cannot_be_claimed(shared: SharedFolder) -> None:
    shared.features("a").touch()
    assert shared.claim("a") is None
    claimed(shared, pid=dead_process(), id="x")  # killed before it released the claim
    for left in ("a.failed", ".a.claim.0123abcd.part", ".b.h5.0123abcd.part"):
        (shared.folder / left).touch()
    shared.remove_leftovers()
    assert names(shared) == [".b.h5.0123abcd.part", "a.h5"]
    assert shared.states(["a", "b"]) == [SlideState("a", "done"), SlideState("b", "pending")]


def test_failed_and_empty_slides_are_left_to_the_next_run(shared: SharedFolder) -> None:
    for name, outcome in (("a", "failed"), ("b", "empty")):
        claim = shared.claim(name)
        assert claim is not None
        with claim:
            claim.record(outcome, f"{name} is no good")  # type: ignore[arg-type]
        os.utime(claim.outcomes[outcome], (time.time() + 1,) * 2)
        assert shared.claim(name) is None
    assert shared.states() == [
        SlideState("a", "failed", "a is no good"),
        SlideState("b", "empty", "b is no good"),
    ]
    for path in shared.folder.iterdir():
        os.utime(path, (time.time() - 1,) * 2)
    later = SharedFolder(shared.folder)
    assert later.claim("a") is not None
    assert later.claim("b") is not None
    assert names(shared) == ["a.claim", "b.claim"]
