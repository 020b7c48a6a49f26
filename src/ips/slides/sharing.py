"""Share a folder of slides between processes on one or many machines, without a scheduler.

The state of a slide is stored beside its features:

    slide.h5      finished; the file appears when it is complete
    slide.claim   a process works on it and refreshes the file's modification time
    slide.failed  it failed; one sentence says why
    slide.empty   it has no tissue; one sentence says why

Only one process can create a claim, and only one can rename the claim of a dead process away. If
two processes ever work on the same slide (a machine sleeps and wakes up), both write the same
content to temporary files of their own and rename them: nothing is lost or incomplete.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, get_args
from uuid import uuid4

from ips.errors import IPSError, shown
from ips.files import naming_file, write_text

State = Literal["done", "empty", "failed", "working", "pending"]
Outcome = Literal["empty", "failed"]

_REFRESH_SECONDS = 30.0
_STALE_SECONDS = 600.0  # a claim that was not refreshed for so long belongs to a dead process
_PROCESS_ID = uuid4().hex
_TEMPORARY = re.compile(
    r"\.(.+)\.(?:h5|claim|empty|failed)\.[0-9a-f]{8,32}\.part|(.+)\.(?:claim|empty|failed)"
)


@dataclass(frozen=True)
class SlideState:
    """State of a slide; ``note`` says why it failed or is empty, or which process works on it."""

    name: str
    state: State
    note: str = ""


class ClaimLostError(Exception):
    """Another process took this one for dead and took the slide over."""


class SharedFolder:
    """A folder of features that several processes fill; it is created if missing."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._started = time.time()

    def features(self, name: str) -> Path:
        return self.folder / f"{name}.h5"

    def claim(self, name: str) -> Claim | None:
        """Claim a slide; None if it is finished, or another process works on it.

        A slide that failed or was empty since this object was created is left to the next run.
        """
        claim = Claim(self.folder, name)
        if self.features(name).exists() or self._has_outcome(name) or not claim.acquire():
            return None
        if self.features(name).exists():  # finished by another process in the meantime
            claim.release()
            return None
        claim.clean()
        return claim

    def remove_leftovers(self) -> None:
        """Remove the files that dead processes left beside finished slides."""
        for name, file in _temporary_files(self.folder):
            if self.features(name).exists():
                file.unlink(missing_ok=True)

    def states(self, names: Iterable[str] | None = None) -> list[SlideState]:
        """States of the given slides; by default of all slides that have a file in the folder."""
        if names is None:
            files = [file for file in self.folder.iterdir() if not file.name.startswith(".")]
            kinds = (".h5", ".claim", ".empty", ".failed")
            names = sorted({file.stem for file in files if file.suffix in kinds})
        return [self._state(name) for name in names]

    def _state(self, name: str) -> SlideState:
        claim = Claim(self.folder, name)
        if self.features(name).exists():
            return SlideState(name, "done")
        if (owner := claim.owner()) is not None and not claim.is_stale(owner):
            host, pid = owner.get("host", "another machine"), owner.get("pid", "unknown")
            note = f"process {shown(pid, quote=False)} on {shown(host, quote=False)}"
            return SlideState(name, "working", note)
        for outcome, file in claim.outcomes.items():
            with suppress(FileNotFoundError):
                note = file.read_text(encoding="utf-8", errors="replace")
                return SlideState(name, outcome, str(IPSError(note)))  # one line, of any content
        return SlideState(name, "pending")

    def _has_outcome(self, name: str) -> bool:
        for file in Claim(self.folder, name).outcomes.values():
            with suppress(FileNotFoundError):
                return file.stat().st_mtime >= self._started
        return False


class Claim:
    """The right of one process to work on a slide; use it as a context manager."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name, self._folder = name, folder
        self.file = folder / f"{name}.claim"
        self.outcomes = {kind: folder / f"{name}.{kind}" for kind in get_args(Outcome)}
        self._me = _this_process()
        self._refreshed = 0.0

    def acquire(self) -> bool:
        """Create the claim, unless another live process has it."""
        owner = self.owner()
        if owner is not None and not (self.is_stale(owner) and self._remove(owner)):
            return False
        part = self._part()
        text = json.dumps(self._me)
        try:
            with naming_file(self.file, part):
                part.write_text(text, encoding="utf-8")
            if not self._create(part, text):
                return False
        finally:
            part.unlink(missing_ok=True)
        self._refreshed = time.monotonic()
        return True

    def _create(self, part: Path, text: str) -> bool:
        """Create the claim with the content of ``part``; False if another process was faster."""
        try:
            os.link(part, self.file)  # complete, and only if there is no such file
        except (FileExistsError, FileNotFoundError):
            return False
        except OSError:  # a file system without links
            try:
                with naming_file(self.file), self.file.open("x", encoding="utf-8") as file:
                    file.write(text)
            except FileExistsError:
                return False
            except OSError:
                self.file.unlink(missing_ok=True)
                raise
        return True

    def refresh(self) -> None:
        """Show that the process is alive; cheap to call often."""
        if time.monotonic() - self._refreshed < _REFRESH_SECONDS:
            return
        self._refreshed = time.monotonic()
        if not self.is_mine():
            raise ClaimLostError(self.name)
        os.utime(self.file)

    def record(self, outcome: Outcome, reason: str) -> None:
        write_text(self.outcomes[outcome], reason)

    def clean(self) -> None:
        """Remove the files of earlier attempts; nobody else uses them while we have the claim."""
        for name, file in _temporary_files(self._folder):
            if name == self.name and file != self.file:
                file.unlink(missing_ok=True)

    def release(self) -> None:
        """Give the claim up, if it is still ours."""
        if self.is_mine():
            self.file.unlink(missing_ok=True)

    def is_mine(self) -> bool:
        """Whether no other process has taken the slide over."""
        return self.owner() == self._me

    def owner(self) -> dict[str, Any] | None:
        """The process that has the claim: None if nobody has, empty if the file is unreadable."""
        return _read_owner(self.file)

    def is_stale(self, owner: dict[str, Any]) -> bool:
        """Whether the owner is dead, as far as this process can know."""
        if all(owner.get(key) == self._me[key] for key in ("host", "namespace")):
            if owner.get("pid") == self._me["pid"]:
                return owner != self._me  # an earlier process had our process number
            if not _is_alive(owner.get("pid")):
                return True
        try:
            return time.time() - self.file.stat().st_mtime > _STALE_SECONDS
        except FileNotFoundError:
            return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def _remove(self, owner: dict[str, Any]) -> bool:
        """Rename the claim of ``owner`` away; False if another process was faster."""
        aside = self._part()
        try:
            self.file.rename(aside)
        except FileNotFoundError:
            return False
        if _read_owner(aside) == owner:
            aside.unlink(missing_ok=True)
            return True
        # Another live process took the claim over before we renamed it: give it back.
        with suppress(FileNotFoundError):  # that process has already cleaned up
            aside.rename(self.file)
        return False

    def _part(self) -> Path:
        return self._folder / f".{self.file.name}.{uuid4().hex[:8]}.part"


def _temporary_files(folder: Path) -> list[tuple[str, Path]]:
    """Claims, outcomes and partial files of a folder, with the name of their slide."""
    matches = [(_TEMPORARY.fullmatch(file.name), file) for file in folder.iterdir()]
    return [(match[1] or match[2], file) for match, file in matches if match]


def _read_owner(file: Path) -> dict[str, Any] | None:
    try:
        owner = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        return {}
    return owner if isinstance(owner, dict) else {}


def _this_process() -> dict[str, Any]:
    """Identity of this process; ``id`` distinguishes it from earlier ones with the same number."""
    # Containers can share a host name and still number their processes separately.
    space = Path("/proc/self/ns/pid")
    namespace = str(space.readlink()) if space.is_symlink() else ""
    host, pid = socket.gethostname(), os.getpid()
    return {"host": host, "namespace": namespace, "pid": pid, "id": _PROCESS_ID}


def _is_alive(pid: object) -> bool:
    """Whether the process runs on this machine; True if unknown."""
    if sys.platform == "win32" or not isinstance(pid, int) or not 0 < pid < 2**31:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # the process belongs to another user
        pass
    return True
