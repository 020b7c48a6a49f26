"""Several processes, on one machine or on many, share a folder of slides without a scheduler.

What is known of a slide stands beside its features:

    slide.h5      done: the file gets this name when it is whole
    slide.claim   a process is at work on it; the file's time is when it last said so
    slide.failed  why it could not be done, in a sentence
    slide.empty   why there is nothing to do

Making a claim, and renaming away that of a process which is no more, are things that one process
only can do. Should two ever work on the same slide (a machine sleeps and wakes up), both write the
same file under names of their own, and rename it: nothing is lost and nothing is half-made.
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
from types import TracebackType
from typing import Any, Literal, Self
from uuid import uuid4

State = Literal["done", "empty", "failed", "working", "left"]
Verdict = Literal["empty", "failed"]

_BEAT = 30.0  # seconds after which a process says again that it is at work
_SILENCE = 600.0  # seconds after which one that does not is taken to be no more
_ID = uuid4().hex
_LEFT_OVER = re.compile(r"\.(.+)\.(?:h5|claim)\.[0-9a-f]{8}\.part|(.+)\.(?:claim|empty|failed)")


@dataclass(frozen=True)
class SlideState:
    """How far a slide is; ``note`` says why it failed or is empty, or who is at work on it."""

    name: str
    state: State
    note: str = ""


class ClaimLostError(Exception):
    """Another process took this one to be no more, and does the slide itself."""


class SharedFolder:
    """The folder of features that processes share; it is made where it is missing."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._began = time.time()

    def features(self, name: str) -> Path:
        """Where the features of a slide are once they are whole."""
        return self.folder / f"{name}.h5"

    def take(self, name: str) -> Claim | None:
        """The claim on a slide, or None where it is done, or another's to do.

        A slide that was given up since this process began is left to the next run.
        """
        claim = Claim(self.folder, name)
        if self.features(name).exists() or self._is_given_up(name) or not claim.make():
            return None
        if self.features(name).exists():  # finished by another between the first look and now
            claim.release()
            return None
        claim.clean()
        return claim

    def sweep(self) -> None:
        """Remove what processes that are no more have left beside slides that are done."""
        for file in list(self.folder.iterdir()):
            found = _LEFT_OVER.fullmatch(file.name)
            if found is not None and self.features(found[1] or found[2]).exists():
                file.unlink(missing_ok=True)

    def states(self, names: Iterable[str] | None = None) -> list[SlideState]:
        """How far these slides are; by default all that have left a trace in the folder."""
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
            return SlideState(name, "working", f"process {pid} on {host}")
        for verdict, file in claim.verdicts.items():
            with suppress(FileNotFoundError):  # there is none, or it is just being removed
                return SlideState(name, verdict, file.read_text(encoding="utf-8"))
        return SlideState(name, "left")

    def _is_given_up(self, name: str) -> bool:
        for file in Claim(self.folder, name).verdicts.values():
            with suppress(FileNotFoundError):
                return file.stat().st_mtime >= self._began
        return False


class Claim:
    """What one process has on a slide while it works on it; leaving a ``with`` block gives it up.

    Args:
        folder: that is shared.
        name: of the slide.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.name, self._folder = name, folder
        self.file = folder / f"{name}.claim"
        kinds: tuple[Verdict, ...] = ("empty", "failed")
        self.verdicts = {kind: folder / f"{name}.{kind}" for kind in kinds}
        self._own = _this_process()
        self._said = 0.0

    def make(self) -> bool:
        """Make the claim, where there is none or only one of a process that is no more."""
        owner = self.owner()
        if owner is not None and not (self.is_stale(owner) and self._remove(owner)):
            return False
        part = self._part()
        text = json.dumps(self._own)
        part.write_text(text, encoding="utf-8")
        try:
            os.link(part, self.file)  # with its content or not at all, and only where there is none
        except (FileExistsError, FileNotFoundError):  # another was faster
            return False
        except OSError:  # a file system without links
            try:
                with self.file.open("x", encoding="utf-8") as file:
                    file.write(text)
            except FileExistsError:
                return False
        finally:
            part.unlink(missing_ok=True)
        self._said = time.monotonic()
        return True

    def beat(self) -> None:
        """Say that the work goes on; call it often, it does nothing most of the time."""
        if time.monotonic() - self._said < _BEAT:
            return
        self._said = time.monotonic()
        if not self.is_mine():
            raise ClaimLostError(self.name)
        os.utime(self.file)

    def give_up(self, verdict: Verdict, reason: str) -> None:
        """Note why the slide could not be done."""
        part = self._part()
        part.write_text(reason, encoding="utf-8")
        part.replace(self.verdicts[verdict])

    def clean(self) -> None:
        """Remove what earlier attempts left: the slide is ours, so none of it is in use."""
        for file in self.verdicts.values():
            file.unlink(missing_ok=True)
        for file in list(self._folder.iterdir()):
            found = _LEFT_OVER.fullmatch(file.name)
            if found is not None and found[1] == self.name:
                file.unlink(missing_ok=True)

    def release(self) -> None:
        """Give it up."""
        if self.is_mine():
            self.file.unlink(missing_ok=True)

    def is_mine(self) -> bool:
        """Whether no other process has taken it over."""
        return self.owner() == self._own

    def owner(self) -> dict[str, Any] | None:
        """Who has the claim: nothing is known of one that cannot be read, None if nobody has."""
        try:
            owner = json.loads(self.file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError:
            return {}
        return owner if isinstance(owner, dict) else {}

    def is_stale(self, owner: dict[str, Any]) -> bool:
        """Whether that process is no more, by what can be known from here."""
        own = self._own
        if all(owner.get(key) == own[key] for key in ("host", "namespace")):
            if owner.get("pid") == own["pid"]:
                return owner != own  # of an earlier process that had this one's number
            if not _is_alive(owner.get("pid")):
                return True
        try:
            return time.time() - self.file.stat().st_mtime > _SILENCE
        except FileNotFoundError:
            return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def _remove(self, owner: dict[str, Any]) -> bool:
        """Rename the claim of ``owner`` away; False where another was faster."""
        aside = self._part()
        try:
            self.file.rename(aside)
        except FileNotFoundError:
            return False
        if _same(aside, owner):
            aside.unlink(missing_ok=True)
            return True
        # Another took it over between our look and the renaming, and is at work: give it back.
        with suppress(FileNotFoundError):  # that one has cleaned up after us
            aside.rename(self.file)
        return False

    def _part(self) -> Path:
        return self._folder / f".{self.file.name}.{uuid4().hex[:8]}.part"


def _same(file: Path, owner: dict[str, Any]) -> bool:
    try:
        return bool(json.loads(file.read_text(encoding="utf-8")) == owner)
    except FileNotFoundError:
        return False
    except ValueError:
        return not owner


def _this_process() -> dict[str, Any]:
    """Who makes a claim; ``id`` tells this process from earlier ones of its number."""
    # Containers may share the name of a machine and yet each count processes by themselves.
    space = Path("/proc/self/ns/pid")
    namespace = str(space.readlink()) if space.is_symlink() else ""
    host, pid = socket.gethostname(), os.getpid()
    return {"host": host, "namespace": namespace, "pid": pid, "id": _ID}


def _is_alive(pid: object) -> bool:
    """Whether there is such a process on this machine, as far as can be told."""
    if sys.platform == "win32" or not isinstance(pid, int):
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # there is, and it belongs to someone else
        return True
    return True
