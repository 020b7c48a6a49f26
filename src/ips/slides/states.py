"""The state of slides in a folder of features, stored beside the features.

slide.h5      finished; the file appears when it is complete
slide.failed  it failed; one sentence says why
slide.empty   it has no tissue; one sentence says why
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from ips.errors import IPSError
from ips.files import write_text

Outcome = Literal["empty", "failed"]
State = Literal["done", "empty", "failed", "pending"]

_PART = re.compile(r"\.(.+)\.(?:h5|empty|failed)\.[0-9a-f]{32}\.part")


@dataclass(frozen=True)
class SlideState:
    """State of a slide; ``note`` says why it failed or is empty."""

    name: str
    state: State
    note: str = ""


class FeatureFolder:
    """A folder of features; it is created when something is written."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def features(self, name: str) -> Path:
        return self.folder / f"{name}.h5"

    def done(self) -> set[str]:
        """Names of the finished slides, from one listing of the folder."""
        return {file.stem for file in self._files() if file.suffix == ".h5"}

    def record(self, name: str, outcome: Outcome | None, reason: str = "") -> None:
        """Store that a slide failed or is empty, and why; None if neither is true any more."""
        for kind in get_args(Outcome):
            file = self.folder / f"{name}.{kind}"
            if kind == outcome:
                write_text(file, reason)
            else:
                file.unlink(missing_ok=True)

    def remove_leftovers(self, names: Collection[str]) -> None:
        """Remove the temporary files that dead processes left; none may work on these slides."""
        for file in self.folder.iterdir():
            if (match := _PART.fullmatch(file.name)) and match[1] in names:
                file.unlink(missing_ok=True)

    def states(self, names: Iterable[str] | None = None) -> list[SlideState]:
        """States of the given slides; by default of all slides that have a file in the folder."""
        kinds = (".h5", *(f".{kind}" for kind in get_args(Outcome)))
        found = {file.name for file in self._files() if file.suffix in kinds}
        if names is None:
            names = sorted({Path(name).stem for name in found})
        return [self._state(name, found) for name in names]

    def _state(self, name: str, found: set[str]) -> SlideState:
        if f"{name}.h5" in found:
            return SlideState(name, "done")
        for outcome in get_args(Outcome):
            if (file := f"{name}.{outcome}") in found:
                with suppress(FileNotFoundError):
                    note = (self.folder / file).read_text(encoding="utf-8", errors="replace")
                    return SlideState(name, outcome, str(IPSError(note)))  # one line of anything
        return SlideState(name, "pending")

    def _files(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        return [file for file in self.folder.iterdir() if not file.name.startswith(".")]
