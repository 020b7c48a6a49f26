"""What the page shows of an image: its tiles, the attention over it, its patches, in words."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ips.errors import IPSError
from ips.images import Image, open_image
from ips.images.tile_cache import TileCache
from ips.viewer.annotations import annotation_shapes, find_annotations
from ips.viewer.answers import Answer
from ips.viewer.library import Entry, Library
from ips.viewer.tiles import Colours, image_tile, place, thumbnail, zooms

_TILES = 48 * 2**20  # bytes of encoded tiles held
_MOST_KEPT = 500  # patches of an image that are outlined and shown beside it


class Showing:
    """Reads and draws for the page, in any number of threads.

    The last image asked for is kept open; one that can only be decoded whole (PNG, JPEG) is
    therefore in memory while it is on the page, and once more while the model looks at it.
    """

    def __init__(self, library: Library) -> None:
        self.library = library
        self._opened: tuple[Entry, int | None, Image] | None = None
        self._opening = threading.Lock()
        self._tiles = TileCache(limit=_TILES)

    def tile(self, entry: Entry, zoom: int, column: int, row: int) -> bytes | None:
        """A tile of an image as JPEG or PNG, None where there is none."""
        image, changed = self._image(entry)
        at = place(image, zoom, column, row)
        if at is None:
            return None
        return self._held((entry.id, changed, at), lambda: image_tile(image, at))

    def attention_tile(
        self,
        entry: Entry,
        zoom: int,
        column: int,
        row: int,
        *,
        task: int,
        colours: Colours,
        above: float,
    ) -> bytes | None:
        """A tile of the attention of ``task`` (their number for the mean) as PNG."""
        image, changed = self._image(entry)
        at, found = place(image, zoom, column, row), self.library.answer(entry)
        if at is None or found is None or not 0 <= task < len(found[0].maps):
            return None
        return self._held(
            (entry.id, changed, at, task, colours, above),
            lambda: found[1].tile(task, at, colours=colours, above=above),
        )

    def patch(self, entry: Entry, rank: int) -> bytes | None:
        """One of the patches kept, small, as PNG."""
        found = self.library.answer(entry)
        if found is None or not 0 <= rank < min(len(found[0].kept), _MOST_KEPT):
            return None
        x, y = found[0].kept[rank].tolist()
        image, changed = self._image(entry)
        return self._held(
            (entry.id, changed, rank), lambda: thumbnail(image, x, y, found[0].extent)
        )

    def details(self, entry: Entry) -> dict[str, Any]:
        """All that the page needs to show an image; or why it cannot be shown."""
        try:
            image, changed = self._image(entry)
        except IPSError as error:
            return {"id": entry.id, "name": entry.name, "error": str(error)}
        width, height = image.dimensions
        found = self.library.answer(entry)
        return {
            "id": entry.id,
            "name": entry.name,
            "changed": str(changed),  # more digits than a browser's numbers have
            "width": width,
            "height": height,
            "zoom": zooms(image),
            "bounds": list(image.bounds),
            "mpp": None if image.mpp is None else image.mpp[0],
            "annotated": find_annotations(entry.path, self.library.annotations) is not None,
            "answer": None if found is None else self._told(found[0]) | {"said": entry.answers},
        }

    def annotations(self, entry: Entry) -> list[dict[str, Any]]:
        """The shapes that people drew on an image."""
        path = find_annotations(entry.path, self.library.annotations)
        if path is None:
            return []
        return annotation_shapes(path, self._image(entry)[0])

    def _image(self, entry: Entry) -> tuple[Image, int | None]:
        """The image as its file is now, and when that was changed."""
        with self._opening:
            changed = _changed(entry.path)
            if self._opened is None or self._opened[:2] != (entry, changed):
                # The one before is let go, not closed: a thread may still be reading a tile of it.
                self._opened = None
                self._opened = entry, changed, open_image(entry.path)
            return self._opened[2], changed

    def _held(self, key: tuple[Any, ...], make: Callable[[], bytes]) -> bytes:
        return self._tiles.get(key, lambda: np.frombuffer(make(), dtype=np.uint8)).tobytes()

    def _told(self, answer: Answer) -> dict[str, Any]:
        """An answer in names and plain numbers."""
        predictor = self.library.predictor
        rows = zip(predictor.net.tasks, answer.probabilities, strict=True)
        named = [predictor.class_probabilities(task, torch.from_numpy(p)) for task, p in rows]
        classes = answer.classes
        return {
            "patches": answer.patches,
            "extent": answer.extent,
            "probabilities": [list(each.items()) for each in named],
            "count": len(answer.kept),
            "kept": answer.kept[:_MOST_KEPT].tolist(),
            "attention": answer.attention[:, :_MOST_KEPT].tolist(),
            "classes": None if classes is None else classes[:_MOST_KEPT].tolist(),
        }


def _changed(path: Path) -> int | None:
    """When a file was changed, in nanoseconds; None if it is gone, which opening it will tell."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None
