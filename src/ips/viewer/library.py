"""The images that were given, and what the model says of them.

One thread looks at the images that were not seen before, one after the other; the image that is on
the page goes first, and a look that has to give way goes on later where it was.
"""

from __future__ import annotations

import secrets
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from os.path import commonpath
from pathlib import Path
from typing import Any, Literal

import torch

from ips.errors import DataError, ImageError, IPSError
from ips.files import list_files
from ips.images import is_image
from ips.predictor import Predictor
from ips.viewer import answers
from ips.viewer.answers import Answer, Floats
from ips.viewer.tiles import AttentionTiles

State = Literal["waiting", "looking", "ready", "failed"]

# How the pictures end that `ips explain` writes, perhaps beside the images.
_DRAWN = ("-overlay.png", "-gallery.png", "-classes.png", "-map.tif")
_MAPS = 2  # answers in memory
_DIVISIONS = 200  # steps in which progress is told


def find_images(given: Iterable[Path]) -> list[Path]:
    """The files among ``given``, and the images in its folders, each once.

    What `ips explain` drew of an image is none of a folder's images.
    """
    found: dict[Path, None] = {}
    for path in given:
        if not path.exists():
            raise ImageError(f"{path} does not exist: check the path")
        files = list_files([path], accept=lambda p: is_image(p) and not p.name.endswith(_DRAWN))
        if not files:
            raise DataError(f"{path}: there is no image in this folder: give another, or files")
        found |= dict.fromkeys(files)
    return list(found)


@dataclass(eq=False)
class Entry:
    """An image of the library.

    Attributes:
        id: what the page calls it; says nothing of where it is.
        path: the file.
        name: for a person.
        state: of its prediction.
        done: patches looked at.
        total: patches there are, 0 where that is not known yet.
        message: why it failed.
        answers: per task the names of what is predicted, and the probability of a single one.
        changed: number of the last change.
    """

    id: str
    path: Path
    name: str
    state: State = "waiting"
    done: int = 0
    total: int = 0
    message: str | None = None
    answers: list[dict[str, Any]] | None = None
    changed: int = 1


class _Later(Exception):  # noqa: N818  not an error: another image is wanted first
    pass


class Library:
    """Images and their predictions.

    Args:
        predictor: the model, as `load` read it.
        run: its folder; answers are kept in it, or for this session where it cannot be written to.
        paths: the images.
        annotations: a file, or a folder of files that are called like the images.
    """

    def __init__(
        self,
        predictor: Predictor,
        run: Path,
        paths: Iterable[Path],
        *,
        annotations: Path | None = None,
    ) -> None:
        self.predictor, self.run, self.annotations = predictor, run, annotations
        paths = list(paths)
        names = _names(paths)
        entries = (Entry(secrets.token_urlsafe(9), p, n) for p, n in zip(paths, names, strict=True))
        self._entries = {entry.id: entry for entry in entries}
        self._folder, self._temporary = _writable(run / "viewer")
        self._wanted: Entry | None = None
        self._stopping = False
        self._change = 1
        self._news = threading.Condition()
        self._loading = threading.Lock()
        self._maps: OrderedDict[Path, tuple[Answer, AttentionTiles]] = OrderedDict()
        self._thread = threading.Thread(target=self._work, name="ips-look", daemon=True)

    # The list

    def start(self) -> None:
        """Begin to look at the images."""
        self._thread.start()

    def close(self) -> None:
        """Stop looking; what was found of a large image is kept."""
        with self._news:
            self._stopping = True
            self._news.notify_all()
        if self._thread.ident is not None:
            self._thread.join(timeout=10)
        if self._temporary is not None:
            self._temporary.cleanup()

    def rows(self, since: int = 0) -> tuple[int, list[dict[str, Any]]]:
        """The number of the last change, and the images changed after ``since``."""
        with self._news:
            rows = [
                {k: v for k, v in asdict(entry).items() if k not in ("path", "changed")}
                for entry in self._entries.values()
                if entry.changed > since
            ]
            return self._change, rows

    def get(self, number: str) -> Entry | None:
        """The image that the page calls so."""
        return self._entries.get(number)

    def want(self, entry: Entry) -> None:
        """Look at this image next."""
        with self._news:
            self._wanted = entry
            self._news.notify_all()

    # Answers

    def answer(self, entry: Entry) -> tuple[Answer, AttentionTiles] | None:
        """The answer for an image that has been looked at, and its map; the last few are held."""
        with self._loading:
            if entry.state != "ready":
                return None
            path = self._file(entry)
            if path in self._maps:
                self._maps.move_to_end(path)
                return self._maps[path]
            answer = answers.load(path)
            if answer is None:  # it was removed, or the image was changed, while the page was open
                self._tell(entry, state="waiting", done=0)
                return None
            found = answer, AttentionTiles(answer.maps, answer.cell, answer.offset)
            self._maps[path] = found
            while len(self._maps) > _MAPS:
                self._maps.popitem(last=False)
            return found

    def _summary(self, probabilities: list[Floats]) -> list[dict[str, Any]]:
        summary: list[dict[str, Any]] = []
        for task, p in zip(self.predictor.net.tasks, probabilities, strict=True):
            said = self.predictor.answer(task, torch.from_numpy(p))
            if isinstance(said, str):
                named = self.predictor.class_probabilities(task, torch.from_numpy(p))
                summary.append({"names": [said], "probability": named[said]})
            else:
                summary.append({"names": said, "probability": None})
        return summary

    def _file(self, entry: Entry) -> Path:
        try:
            key = answers.key_of(self.predictor, entry.path)
        except OSError as error:
            raise ImageError(
                f"{entry.name} cannot be found any more ({error.strerror}): start again"
            ) from error
        return self._folder / f"{key}.safetensors"

    # The thread

    def _work(self) -> None:
        for entry in list(self._entries.values()):  # those seen on another day are there at once
            if self._stopping:
                return
            self._recall(entry)
        while (first := self._next()) is not None:
            try:
                self._look(first)
            except _Later:
                self._tell(first, state="waiting")
            except IPSError as error:
                self._tell(first, state="failed", message=str(error))
            except Exception as error:  # whatever it is, the other images are to be seen
                why = f"{type(error).__name__}: {error}"[:200]
                self._tell(first, state="failed", message=f"{first.name}: no answer ({why})")

    def _next(self) -> Entry | None:
        """The image to look at, once there is one; None when it is time to stop."""
        with self._news:
            while not self._stopping:
                waiting = [e for e in self._entries.values() if e.state == "waiting"]
                if waiting:
                    first = self._wanted if self._wanted in waiting else waiting[0]
                    self._tell(first, state="looking")
                    return first
                self._news.wait()
        return None

    def _recall(self, entry: Entry) -> None:
        with suppress(Exception):  # what cannot be recalled is looked at anew
            found = answers.load_probabilities(self._file(entry))
            if found is not None:
                self._tell(entry, state="ready", answers=self._summary(found))

    def _look(self, entry: Entry) -> None:
        target = self._file(entry)  # of the file as it is now: it may change while it is read
        source = self.predictor.open(entry.path)
        if len(source.shape) != 3:
            raise ImageError(
                f"{entry.name} holds features, which cannot be shown: see where a model of "
                "features looked with `ips explain`"
            )
        self._tell(entry, total=len(source))
        step = max(1, len(source) // _DIVISIONS)

        def progress(done: int, total: int) -> None:
            if done - entry.done >= step or done < entry.done:
                self._tell(entry, done=done)
            wanted = self._wanted
            other = wanted is not None and wanted is not entry and wanted.state == "waiting"
            if done < entry.total and (self._stopping or other):
                raise _Later

        explanation = self.predictor.predict(entry.path, source=source, progress=progress)
        answer = Answer.of(explanation)
        answers.save(answer, target)
        summary = self._summary(answer.probabilities)
        self._tell(entry, state="ready", done=entry.total, answers=summary)

    def _tell(self, entry: Entry, **facts: Any) -> None:
        with self._news:
            for name, value in facts.items():
                setattr(entry, name, value)
            self._change += 1
            entry.changed = self._change
            self._news.notify_all()


def _names(paths: list[Path]) -> list[str]:
    """The files' names, or as much of their paths as tells them apart."""
    if len({path.name for path in paths}) == len(paths):
        return [path.name for path in paths]
    whole = [path.absolute() for path in paths]
    root = commonpath([path.parent for path in whole])
    return [path.relative_to(root).as_posix() for path in whole]


def _writable(folder: Path) -> tuple[Path, tempfile.TemporaryDirectory[str] | None]:
    """``folder``, made if it is not there; one for this session if that is not possible."""
    try:
        folder.mkdir(exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder, None
    except OSError:
        temporary = tempfile.TemporaryDirectory(prefix="ips-view-")
        return Path(temporary.name), temporary
