"""The list of images and their predictions.

A thread predicts the images one after the other. The image on the page goes first; a prediction
that is interrupted for it resumes later.
"""

from __future__ import annotations

import secrets
import tempfile
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch

from ips.errors import ImageError, IPSError, because
from ips.predictor import Predictor
from ips.viewer.answers import UNREADABLE, Answer, Floats, cache_name, load_probabilities
from ips.viewer.images import SharedImages, display_names
from ips.viewer.tiles import AttentionTiles

State = Literal["waiting", "running", "ready", "failed"]

_MAX_ANSWERS = 2  # in memory
_PROGRESS_STEPS = 200  # of one prediction


@dataclass(eq=False)
class Entry:
    """One image of the library.

    Attributes:
        id: random identifier for the page, which reveals no path.
        done: number of patches scored so far.
        total: number of patches, 0 until it is known.
        message: why the prediction failed.
        predictions: names of the predicted classes per task, and the probability if it is one.
        version: version of the library at the last change of this entry.
    """

    id: str
    path: Path
    name: str
    state: State = "waiting"
    done: int = 0
    total: int = 0
    message: str | None = None
    predictions: list[dict[str, Any]] | None = None
    version: int = 1


class _Preempted(Exception):  # noqa: N818  not an error: another image goes first
    pass


class Library:
    """Images and their predictions.

    Args:
        predictor: the model, from `ips.load`.
        run: run folder of the model. Answers are cached there, or in a temporary folder if it is
            read-only or None.
        paths: image files.
        annotations: annotation file, or folder of files named like the images.
    """

    def __init__(
        self,
        predictor: Predictor,
        run: Path | None,
        paths: list[Path],
        *,
        annotations: Path | None = None,
    ) -> None:
        self.predictor, self.annotations = predictor, annotations
        self.name = type(predictor.net).__name__ if run is None else run.absolute().name
        self.images = SharedImages(white=predictor.config.patches.white)
        names = zip(paths, display_names(paths), strict=True)
        entries = (Entry(secrets.token_urlsafe(9), path, name) for path, name in names)
        self.entries = {entry.id: entry for entry in entries}
        self._folder, self._temporary = _writable(None if run is None else run / "viewer")
        self._wanted: Entry | None = None
        self._stopping = False
        self._version = 1
        self._changed = threading.Condition()
        self._loading = threading.Lock()
        self._load = lru_cache(maxsize=_MAX_ANSWERS)(_load)
        self._thread = threading.Thread(target=self._run_predictions, daemon=True)

    def start(self) -> None:
        """Start to predict the images in the background."""
        self._thread.start()

    def close(self) -> None:
        """Stop predicting; scores of an unfinished large image are kept."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(timeout=10)
        if self._temporary is not None:
            self._temporary.cleanup()

    def rows(self, since: int = 0) -> tuple[int, list[dict[str, Any]]]:
        """The current version, and the entries that changed after version ``since``."""
        with self._changed:
            rows = [
                {k: v for k, v in asdict(entry).items() if k not in ("path", "version")}
                for entry in self.entries.values()
                if entry.version > since
            ]
            return self._version, rows

    def predict_next(self, entry: Entry) -> None:
        """Predict this image next."""
        with self._changed:
            self._wanted = entry
            self._changed.notify_all()

    def answer(self, entry: Entry) -> tuple[Answer, AttentionTiles] | None:
        """The answer for an image and its attention tiles, None before the prediction is ready."""
        with self._loading:
            if entry.state != "ready":
                return None
            path = self._cache_file(entry)
            try:
                return self._load(path)
            except UNREADABLE:  # the image was modified, or the file removed, in the meantime
                self._update(entry, state="waiting", done=0)
                return None

    def _predictions(self, probabilities: list[Floats]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        tensors = map(torch.from_numpy, probabilities)
        for task, p in zip(self.predictor.net.tasks, tensors, strict=True):
            predicted = self.predictor.answer(task, p)
            if isinstance(predicted, str):
                probability = self.predictor.class_probabilities(task, p)[predicted]
                rows.append({"names": [predicted], "probability": probability})
            elif isinstance(predicted, list):
                rows.append({"names": predicted, "probability": None})
            else:
                rows.append({"names": [f"{predicted:.4g}"], "probability": None})
        return rows

    def _cache_file(self, entry: Entry) -> Path:
        try:
            return self._folder / cache_name(self.predictor, entry.path)
        except OSError as error:
            reason = because(error, remedy="restart the viewer")
            raise ImageError(f"{entry.name} cannot be found any more {reason}") from error

    # The rest runs in the thread.

    def _run_predictions(self) -> None:
        for entry in list(self.entries.values()):  # cached predictions are shown at once
            if self._stopping:
                return
            with suppress(Exception):  # a missing or damaged file is predicted again
                predictions = self._predictions(load_probabilities(self._cache_file(entry)))
                self._update(entry, state="ready", predictions=predictions)
        while (current := self._next()) is not None:
            try:
                self._predict(current)
            except _Preempted:
                self._update(current, state="waiting")
            except IPSError as error:
                self._update(current, state="failed", message=str(error))
            except Exception as error:  # any error: the other images must still be predicted
                reason = f"{type(error).__name__}: {error}"[:200]
                message = f"{current.name}: the prediction failed ({reason})"
                self._update(current, state="failed", message=message)

    def _next(self) -> Entry | None:
        """Wait for the next image to predict; None when it is time to stop."""
        with self._changed:
            while not self._stopping:
                waiting = [e for e in self.entries.values() if e.state == "waiting"]
                if waiting:
                    entry = self._wanted if self._wanted in waiting else waiting[0]
                    self._update(entry, state="running")
                    return entry
                self._changed.wait()
        return None

    def _predict(self, entry: Entry) -> None:
        path = self._cache_file(entry)  # before reading: the file may change meanwhile
        source = self.predictor.open(self.images.open(entry.path)[0])
        self._update(entry, total=len(source))
        step = max(1, len(source) // _PROGRESS_STEPS)

        def progress(done: int, total: int) -> None:
            if done - entry.done >= step or done < entry.done:
                self._update(entry, done=done)
            wanted = self._wanted
            other = wanted is not None and wanted is not entry and wanted.state == "waiting"
            if done < entry.total and (self._stopping or other):
                raise _Preempted

        explanation = self.predictor.predict(entry.path, source=source, progress=progress)
        answer = Answer.from_explanation(explanation)
        answer.save(path)
        predictions = self._predictions(answer.probabilities)
        self._update(entry, state="ready", done=entry.total, predictions=predictions)

    def _update(self, entry: Entry, **values: Any) -> None:
        with self._changed:
            for name, value in values.items():
                setattr(entry, name, value)
            self._version += 1
            entry.version = self._version
            self._changed.notify_all()


def _load(path: Path) -> tuple[Answer, AttentionTiles]:
    answer = Answer.load(path)
    return answer, AttentionTiles(answer.maps, answer.cell, answer.offset)


def _writable(folder: Path | None) -> tuple[Path, tempfile.TemporaryDirectory[str] | None]:
    """``folder``, created if it is missing; a temporary folder if it cannot be written to."""
    if folder is not None:
        with suppress(OSError):
            folder.mkdir(exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder, None
    temporary = tempfile.TemporaryDirectory(prefix="ips-view-")
    return Path(temporary.name), temporary
