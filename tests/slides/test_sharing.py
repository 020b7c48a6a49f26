"""Who may work on a slide: one process at a time, whatever became of the others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ips.slides import sharing as claims
from ips.slides.sharing import Claim, ClaimLostError, SharedFolder, SlideState


@pytest.fixture
def shared(tmp_path: Path) -> SharedFolder:
    return SharedFolder(tmp_path)


def claimed(shared: SharedFolder, name: str = "a", age: float = 0, **changes: Any) -> Claim:
    """A claim that another process made, ``age`` seconds ago."""
    claim = Claim(shared.folder, name)
    assert claim.make()
    owner = claim.owner()
    assert owner is not None
    claim.file.write_text(json.dumps(owner | changes))
    os.utime(claim.file, (time.time() - age,) * 2)
    return claim


def ended() -> int:
    """The number of a process that is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def names(shared: SharedFolder) -> list[str]:
    return sorted(path.name for path in shared.folder.iterdir())


def test_one_has_it(shared: SharedFolder) -> None:
    claim = shared.take("a")
    assert claim is not None
    assert shared.take("a") is None
    assert shared.take("b") is not None
    claim.release()
    assert names(shared) == ["b.claim"]
    assert shared.take("a") is not None


@pytest.mark.parametrize(
    ("age", "changes", "stale"),
    [
        (0, {"pid": os.getppid(), "id": "x"}, False),  # a process of this machine that lives
        (0, {"host": "elsewhere", "pid": 1}, False),
        (500, {"host": "elsewhere", "pid": 1}, False),
        (700, {"host": "elsewhere", "pid": 1}, True),  # silent for more than ten minutes
        (700, {"pid": os.getppid(), "id": "x"}, True),
        (0, {"id": "of an earlier process"}, True),  # that had the number of this one
        (0, {"namespace": "pid:[1]", "id": "x"}, False),  # the same number in another container
    ],
)
def test_a_claim_stands_while_its_process_does(
    shared: SharedFolder, age: float, changes: dict[str, Any], stale: bool
) -> None:
    claimed(shared, age=age, **changes)
    assert shared.states()[0].state == ("left" if stale else "working")
    taken = shared.take("a")
    assert (taken is not None) == stale
    assert taken is None or taken.is_mine()
    assert names(shared) == ["a.claim"]


@pytest.mark.skipif(sys.platform == "win32", reason="only its silence tells there")
def test_that_of_a_process_that_was_killed_is_taken_over_at_once(shared: SharedFolder) -> None:
    claimed(shared, pid=ended(), id="x")
    (shared.folder / ".a.h5.0123abcd.part").touch()  # what it was writing
    (shared.folder / ".ab.h5.0123abcd.part").touch()  # of another slide
    assert shared.take("a") is not None
    assert names(shared) == [".ab.h5.0123abcd.part", "a.claim"]


def test_a_claim_that_cannot_be_read_stands_for_a_while(shared: SharedFolder) -> None:
    claim = Claim(shared.folder, "a")
    claim.file.touch()
    assert shared.take("a") is None
    assert shared.states() == [SlideState("a", "working", "process unknown on another machine")]
    os.utime(claim.file, (0, 0))
    assert shared.take("a") is not None


def test_one_that_another_has_just_taken_over_is_given_back(
    shared: SharedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two see the claim of a dead process; the slower one must not take that of the faster."""
    claim = claimed(shared, host="elsewhere", age=700)
    look = Claim.is_stale

    def slow(self: Claim, owner: dict[str, Any]) -> bool:
        stale = look(self, owner)
        self.file.write_text(json.dumps(owner | {"host": "the faster one"}))
        return stale

    monkeypatch.setattr(Claim, "is_stale", slow)
    assert shared.take("a") is None
    assert json.loads(claim.file.read_text())["host"] == "the faster one"
    assert names(shared) == ["a.claim"]


def test_one_that_another_takes_while_it_is_renamed_is_left_to_it(
    shared: SharedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has the slide removes what others left of it: also what we have just renamed."""
    claimed(shared, host="elsewhere", age=700)
    look, faster = claims._same, []

    def slow(file: Path, owner: dict[str, Any]) -> bool:
        faster.append(shared.take("a"))
        assert not file.exists()
        return look(file, owner)

    monkeypatch.setattr(claims, "_same", slow)
    assert shared.take("a") is None
    assert [claim is not None and claim.is_mine() for claim in faster] == [True]
    assert names(shared) == ["a.claim"]


def test_without_links_a_claim_is_still_made_once(
    shared: SharedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*paths: Path) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    assert shared.take("a") is not None
    monkeypatch.setattr(Claim, "owner", lambda self: None)  # as if another made it just now
    assert shared.take("a") is None
    assert names(shared) == ["a.claim"]


def test_a_beat_renews_it_or_tells_that_it_is_lost(
    shared: SharedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = shared.take("a")
    assert claim is not None
    os.utime(claim.file, (0, 0))
    claim.beat()  # too soon to say anything
    assert claim.file.stat().st_mtime == 0
    monkeypatch.setattr(claims, "_BEAT", 0)
    claim.beat()
    assert time.time() - claim.file.stat().st_mtime < 60
    claim.file.write_text('{"host": "elsewhere"}')
    with pytest.raises(ClaimLostError):
        claim.beat()
    claim.release()  # of the other it stays
    assert names(shared) == ["a.claim"]


def test_what_is_done_is_nobodys(shared: SharedFolder) -> None:
    shared.features("a").touch()
    assert shared.take("a") is None
    claimed(shared, pid=ended(), id="x")  # killed between finishing the slide and saying so
    for left in ("a.failed", ".a.claim.0123abcd.part", ".b.h5.0123abcd.part"):
        (shared.folder / left).touch()
    shared.sweep()
    assert names(shared) == [".b.h5.0123abcd.part", "a.h5"]
    assert shared.states(["a", "b"]) == [SlideState("a", "done"), SlideState("b", "left")]


def test_what_was_given_up_is_tried_by_the_next_run(shared: SharedFolder) -> None:
    for name, verdict in (("a", "failed"), ("b", "empty")):
        claim = shared.take(name)
        assert claim is not None
        with claim:
            claim.give_up(verdict, f"{name} is no good")  # type: ignore[arg-type]
        os.utime(claim.verdicts[verdict], (time.time() + 1,) * 2)  # type: ignore[index]
        assert shared.take(name) is None
    assert shared.states() == [
        SlideState("a", "failed", "a is no good"),
        SlideState("b", "empty", "b is no good"),
    ]
    for path in shared.folder.iterdir():
        os.utime(path, (time.time() - 1,) * 2)
    later = SharedFolder(shared.folder)
    assert later.take("a") is not None
    assert later.take("b") is not None
    assert names(shared) == ["a.claim", "b.claim"]
