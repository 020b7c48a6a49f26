"""The list of bags, which are single images or the images of a patient, and their predictions.

A thread predicts the bag on the page, and the others only if it is asked to. A prediction that is
interrupted for another bag, or paused, resumes later.
"""

from __future__ import annotations

import secrets
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from ips.errors import ImageError, IPSError, because
from ips.files import fingerprint
from ips.inputs import Bags
from ips.patches import SlideFinder
from ips.prediction_file import Truth
from ips.predictor import Predictor
from ips.viewer.answers import UNREADABLE, Answer, Floats, cache_name, load_probabilities
from ips.viewer.images import (
    SharedImages,
    bag_names,
    display_names,
    find_slide,
    is_feature_file,
)
from ips.viewer.texts import answer_names, describe_predictions
from ips.viewer.tiles import AttentionTiles, rank_maps

State = Literal["waiting", "running", "ready", "failed"]

_MAX_ANSWERS = 2  # in memory
_PROGRESS_STEPS = 200  # of one prediction


@dataclass(frozen=True)
class EntryImage:
    """One image of an entry.

    Attributes:
        path: file that is predicted.
        name: its name on the page.
        slide: slide behind a feature file; None for an image.
    """

    path: Path
    name: str
    slide: Path | None

    @property
    def file(self) -> Path:
        """The image file that is shown."""
        return self.slide or self.path


@dataclass(eq=False)
class Entry:
    """One bag of the library: an image, or several images of a patient.

    Attributes:
        id: random identifier for the page, which reveals no path.
        bag: name of the bag, a path if it is an image.
        name: its name on the page.
        images: its images.
        done: number of patches scored so far.
        total: number of patches, 0 until it is known.
        message: why the prediction failed.
        truths: names of the true classes per task, None where the label is unknown.
        predictions: what is predicted per task, see `describe_predictions`.
        version: version of the library at the last change of this entry.
    """

    id: str
    bag: str
    name: str
    images: list[EntryImage]
    state: State = "waiting"
    done: int = 0
    total: int = 0
    message: str | None = None
    truths: list[list[str] | None] = field(default_factory=list)
    predictions: list[dict[str, Any]] | None = None
    version: int = 1

    @property
    def paths(self) -> list[Path]:
        """The files that are predicted."""
        return [image.path for image in self.images]


class Queue(BaseModel, frozen=True):
    """What the thread is asked to predict.

    Attributes:
        all: all entries, not only the one on the page.
        paused: none, for the time being.
    """

    all: bool = False
    paused: bool = False


class _Preempted(Exception):  # noqa: N818  not an error: another image goes first
    pass


class Library:
    """Images and their predictions.

    Args:
        predictor: the model, from `ips.load`.
        run: run folder of the model. Answers are cached there, or in a temporary folder if it is
            read-only or None.
        bags: image files, or feature files whose slide is shown, by the name of their bag.
        annotations: annotation file, or folder of files named like the images.
        truth: correct answers by bag and task, where they are known.
        slides: where the slides of feature files are.
    """

    def __init__(
        self,
        predictor: Predictor,
        run: Path | None,
        bags: Bags,
        *,
        annotations: Path | None = None,
        truth: Truth | None = None,
        slides: SlideFinder | None = None,
    ) -> None:
        self.predictor, self.annotations = predictor, annotations
        self._slides = slides or SlideFinder()
        self.name = type(predictor.net).__name__ if run is None else run.absolute().name
        self.images = SharedImages(white=predictor.config.patches.white)
        self._truth = truth or {}
        self.entries: dict[str, Entry] = {}
        for bag, name in bag_names(bags).items():
            entry = Entry(secrets.token_urlsafe(9), bag, name, self._entry_images(bags[bag]))
            found = self._truth.get(bag, {})
            entry.truths = [answer_names(found.get(task)) for task in predictor.net.tasks]
            self.entries[entry.id] = entry
        self._folder, self._temporary = _writable(None if run is None else run / "viewer")
        self._wanted: Entry | None = None
        self._queue = Queue()
        self._cache_read = False
        self._stopping = False
        self._version = 1
        self._changed = threading.Condition()
        self._loading = threading.Lock()
        self._load = lru_cache(maxsize=_MAX_ANSWERS)(_load)
        self._thread = threading.Thread(target=self._run_predictions, daemon=True)

    def _entry_images(self, files: list[str]) -> list[EntryImage]:
        paths = [Path(file) for file in files]
        images = []
        for path, name in zip(paths, display_names(paths), strict=True):
            slide = find_slide(path, self._slides) if is_feature_file(path) else None
            images.append(EntryImage(path, name, slide))
        return images

    def start(self) -> None:
        """Start to predict in the background."""
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
            changed = [entry for entry in self.entries.values() if entry.version > since]
            return self._version, [_row(entry) for entry in changed]

    @property
    def labelled(self) -> bool:
        """Whether the true label of an image is known."""
        return any(self._truth.values())

    def status(self) -> dict[str, bool]:
        """The queue, and whether the thread is busy, so that entries may change."""
        with self._changed:
            running = any(entry.state == "running" for entry in self.entries.values())
            busy = running or not self._cache_read or self._candidate() is not None
            return self._queue.model_dump() | {"busy": busy}

    def set_queue(self, queue: Queue) -> None:
        """Change which images are predicted."""
        with self._changed:
            self._queue = queue
            self._changed.notify_all()

    def predict_next(self, entry: Entry) -> None:
        """Predict this image next."""
        with self._changed:
            self._wanted = entry
            self._changed.notify_all()

    def answer(self, entry: Entry) -> tuple[Answer, list[AttentionTiles]] | None:
        """The answer for an entry, and attention tiles of each part; None before it is ready."""
        with self._loading:
            if entry.state != "ready":
                return None
            path = self._cache_file(entry)
            try:
                return self._load(path)
            except UNREADABLE:  # the image was modified, or the file removed, in the meantime
                self._update(entry, state="waiting", done=0)
                return None

    def _cache_file(self, entry: Entry) -> Path:
        try:
            slides = [fingerprint(image.slide) for image in entry.images if image.slide is not None]
            sizes = self._slides.patch_size, self._slides.level, self._slides.mpp
            facts: tuple[object, ...] = (*slides, *sizes) if slides else ()
            return self._folder / cache_name(self.predictor, entry.paths, *facts)
        except OSError as error:
            reason = because(error, remedy="restart the viewer")
            raise ImageError(f"{entry.name} cannot be found any more {reason}") from error

    # The rest runs in the thread.

    def _run_predictions(self) -> None:
        for entry in list(self.entries.values()):  # cached predictions are shown at once
            if self._stopping:
                return
            with suppress(Exception):  # a missing or damaged file is predicted again
                self._set_ready(entry, load_probabilities(self._cache_file(entry)))
        self._cache_read = True
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
                if (entry := self._candidate()) is not None:
                    self._update(entry, state="running")
                    return entry
                self._changed.wait()
        return None

    def _candidate(self) -> Entry | None:
        """The next image to predict, None if there is none at present."""
        if self._queue.paused:
            return None
        waiting = [entry for entry in self.entries.values() if entry.state == "waiting"]
        if self._wanted in waiting:
            return self._wanted
        return waiting[0] if waiting and self._queue.all else None

    def _predict(self, entry: Entry) -> None:
        path = self._cache_file(entry)  # before reading: the file may change meanwhile
        opened: list[Any] = [
            self.images.open(image.path)[0] if image.slide is None else image.path
            for image in entry.images
        ]
        several = len(opened) > 1
        source = self.predictor.open(opened if several else opened[0], name=entry.name)
        source = source.on_slide(self._slides)
        self._update(entry, total=len(source))
        step = max(1, len(source) // _PROGRESS_STEPS)

        def progress(done: int, total: int) -> None:
            if done - entry.done >= step or done < entry.done:
                self._update(entry, done=done)
            wanted = self._wanted
            other = wanted is not None and wanted is not entry and wanted.state == "waiting"
            if done < entry.total and (self._stopping or self._queue.paused or other):
                raise _Preempted

        given = entry.paths if several else entry.paths[0]
        explanation = self.predictor.predict(given, source=source, progress=progress)
        answer = Answer.from_explanation(explanation)
        answer.save(path)
        self._set_ready(entry, answer.probabilities)

    def _set_ready(self, entry: Entry, probabilities: list[Floats]) -> None:
        truth = self._truth.get(entry.bag, {})
        predictions = describe_predictions(self.predictor, probabilities, truth)
        self._update(entry, state="ready", done=entry.total, predictions=predictions)

    def _update(self, entry: Entry, **values: Any) -> None:
        with self._changed:
            for name, value in values.items():
                setattr(entry, name, value)
            self._version += 1
            entry.version = self._version
            self._changed.notify_all()


def _load(path: Path) -> tuple[Answer, list[AttentionTiles]]:
    answer = Answer.load(path)
    patches = [spread.patches for spread in answer.spreads]
    ranks, ratios = rank_maps([part.maps for part in answer.parts], patches)
    pairs = zip(answer.parts, ranks, strict=True)
    tiles = [AttentionTiles(r, ratios, cell=part.cell, offset=part.offset) for part, r in pairs]
    return answer, tiles


def _row(entry: Entry) -> dict[str, Any]:
    """What the page is told about an entry: no path of a file."""
    hidden = ("bag", "images", "version")
    row = {f.name: getattr(entry, f.name) for f in fields(entry) if f.name not in hidden}
    return row | {"images": [image.name for image in entry.images]}


def _writable(folder: Path | None) -> tuple[Path, tempfile.TemporaryDirectory[str] | None]:
    """``folder``, created if it is missing; a temporary folder if it cannot be written to."""
    if folder is not None:
        with suppress(OSError):
            folder.mkdir(exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder, None
    temporary = tempfile.TemporaryDirectory(prefix="ips-view-")
    return Path(temporary.name), temporary
