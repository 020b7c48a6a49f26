"""Explain images into a folder, each as one piece of work for any process.

An image whose files are there already is not explained again: `_Record` is written after them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ips._version import __version__
from ips.errors import ImageError
from ips.files import fingerprint, write_text

if TYPE_CHECKING:  # torch would delay --help
    from ips.patches import PatchSource, SlideFinder
    from ips.predictor import Predictor

    Report = Callable[[int, int], None]


@dataclass(frozen=True)
class ExplainedImage:
    """Files that explain the prediction for one image.

    Attributes:
        image: path of the image, as it was given.
        answer: predicted classes of all tasks, in one line.
        patches: number of patches of the image.
        attention: how evenly the attention is spread, in words.
        stem: beginning of the names of its files.
        files: files that were written.
        notes: one sentence for each file that this image cannot have, and one if a screen left out
            patches.
    """

    image: str
    answer: str
    patches: int
    attention: str
    stem: str
    files: list[Path]
    notes: list[str]


@dataclass(frozen=True)
class Explaining:
    """Explains one bag: its name, files and stem of the output.

    Attributes:
        predictor: the model.
        folder: output folder.
        options: further arguments of `ips.explain.export.write_explanation`.
        map_coordinates: write the GeoJSON of a GeoTIFF in its map coordinates.
        finder: finds the slides of feature files.
        outlines: annotations, see `ips.annotations.find_annotations`.
    """

    predictor: Predictor
    folder: Path
    options: Mapping[str, Any]
    map_coordinates: bool
    finder: SlideFinder
    outlines: Path | None

    def __call__(self, item: tuple[str, list[str], str], report: Report) -> ExplainedImage:
        from ips.cohort import predict_with
        from ips.explain.export import ENDINGS, omissions, write_explanation
        from ips.explain.map_coordinates import read_map_coordinates
        from ips.inputs import bag_images

        name, files, stem = item
        on_map = None
        if self.map_coordinates:
            on_map = [read_map_coordinates(Path(file)) for file in files]
        source = self.predictor.open(bag_images(name, files), name=name).on_slide(self.finder)
        record = _Record(self.folder / f".{stem}.explained", self._key(files, source))
        if (done := record.read()) is not None:
            source.close()
            return done
        record.remove()
        found = predict_with(self.predictor, name, files, report, source=source)
        found, notes = found.annotated(self.outlines)
        numbers = count(1)
        written = write_explanation(
            self.folder,
            found,
            stem=stem,
            on_map=on_map,
            progress=lambda: report(next(numbers), len(ENDINGS)),
            **self.options,
        )
        found.source.close()
        answer = found.title.removeprefix(f"{found.name} · ")
        notes += omissions(found, crop=self.options["crop"])
        if found.screened is not None:
            notes.append(f"{name}: {found.screened}")
        words = str(found.spread)
        explained = ExplainedImage(name, answer, found.patches, words, stem, written, notes)
        record.write(explained)
        return explained

    def _key(self, files: list[str], source: PatchSource) -> str:
        """What the files depend on; empty if that is not known."""
        from ips.annotations import find_annotations

        pictures = {part.picture.path for part in source.parts if part.picture is not None}
        others = {path for path in pictures if path is not None}
        others |= {found for path in others if (found := find_annotations(path, self.outlines))}
        finder = replace(self.finder, folder=None, named={})  # the slides found are in `others`
        options = sorted(self.options.items()), self.map_coordinates, finder, __version__
        with suppress(OSError, ImageError):
            key = self.predictor.fingerprint(*map(Path, files))
            for path in sorted(others):
                key = fingerprint(path, path, key)
            return f"{key} {options}"
        return ""


@dataclass(frozen=True)
class _Record:
    """What came of an image, beside its files; hidden, because it is of use to this program alone.

    Attributes:
        path: the file.
        key: what the files of the image depend on; without it nothing is stored.
    """

    path: Path
    key: str

    def read(self) -> ExplainedImage | None:
        """The image, if it was explained from the same files with the same options."""
        if not self.key:
            return None
        try:
            stored = json.loads(self.path.read_text(encoding="utf-8"))
            if stored.pop("key") != self.key:
                return None
            files = [self.path.parent / name for name in stored.pop("files")]
            found = ExplainedImage(files=files, **stored)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None  # there is none, or it is damaged
        return found if all(file.is_file() for file in files) else None

    def remove(self) -> None:
        """Remove the file, before others of the same image are written."""
        self.path.unlink(missing_ok=True)

    def write(self, explained: ExplainedImage) -> None:
        """Store the image."""
        if self.key:
            values = asdict(explained) | {"files": [file.name for file in explained.files]}
            write_text(self.path, json.dumps(values | {"key": self.key}) + "\n")
