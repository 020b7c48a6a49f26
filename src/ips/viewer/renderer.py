"""Everything that the page shows of one image: tiles, attention, patches, text."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ips.errors import IPSError
from ips.images import Image
from ips.images.tile_cache import TileCache
from ips.viewer.answers import Answer
from ips.viewer.images import annotation_shapes, find_annotations
from ips.viewer.library import Entry, Library
from ips.viewer.tiles import MapStyle, find_tile, max_zoom, render_patch, render_tile

_CACHE_BYTES = 48 * 2**20  # of encoded tiles
_MAX_KEPT = 500  # patches of an image that are outlined and listed


class Renderer:
    """Renders for the page, in any number of threads.

    The last requested image stays open. A PNG or JPEG is therefore decoded in memory while it is on
    the page; the prediction of the same image shares it.
    """

    def __init__(self, library: Library) -> None:
        self.library = library
        self._current: Image | None = None
        self._cache = TileCache(limit=_CACHE_BYTES)
        self._workers = threading.Semaphore(min(4, os.cpu_count() or 1))  # bounds the memory

    def tile(self, entry: Entry, zoom: int, column: int, row: int) -> bytes | None:
        """A tile of an image as JPEG or PNG, None outside the image."""
        image, modified = self._open(entry)
        tile = find_tile(image, zoom, column, row)
        if tile is None:
            return None
        return self._cached((entry.id, modified, tile), lambda: render_tile(image, tile))

    def attention_tile(
        self, entry: Entry, zoom: int, column: int, row: int, style: MapStyle
    ) -> bytes | None:
        """A tile of the attention of a task as PNG, None outside the image."""
        image, modified = self._open(entry)
        tile, found = find_tile(image, zoom, column, row), self.library.answer(entry)
        if tile is None or found is None or style.task >= len(found[0].maps):
            return None
        return self._cached((entry.id, modified, tile, style), lambda: found[1].render(tile, style))

    def patch(self, entry: Entry, rank: int) -> bytes | None:
        """A thumbnail of a kept patch as PNG."""
        found = self.library.answer(entry)
        if found is None or not 0 <= rank < min(len(found[0].kept), _MAX_KEPT):
            return None
        x, y = found[0].kept[rank].tolist()
        image, modified = self._open(entry)
        return self._cached(
            (entry.id, modified, rank), lambda: render_patch(image, x, y, found[0].extent)
        )

    def details(self, entry: Entry) -> dict[str, Any]:
        """All that the page needs to show an image, or why it cannot be shown."""
        try:
            image, modified = self._open(entry)
        except IPSError as error:
            return {"id": entry.id, "name": entry.name, "error": str(error)}
        width, height = image.dimensions
        found = self.library.answer(entry)
        return {
            "id": entry.id,
            "name": entry.name,
            "modified": str(modified),  # has more digits than a number in JavaScript
            "width": width,
            "height": height,
            "zoom": max_zoom(image),
            "bounds": list(image.bounds),
            "mpp": None if image.mpp is None else image.mpp[0],
            "annotated": find_annotations(entry.path, self.library.annotations) is not None,
            "answer": None if found is None else self._describe(entry, found[0]),
        }

    def annotations(self, entry: Entry) -> list[dict[str, Any]]:
        """The annotated shapes of an image."""
        path = find_annotations(entry.path, self.library.annotations)
        return [] if path is None else annotation_shapes(path, self._open(entry)[0])

    def _open(self, entry: Entry) -> tuple[Image, int | None]:
        # The previous image is not closed: another thread may still read it.
        self._current, modified = self.library.images.open(entry.path)
        return self._current, modified

    def _cached(self, key: tuple[Any, ...], render: Callable[[], bytes]) -> bytes:
        def encoded() -> npt.NDArray[np.uint8]:
            with self._workers:
                return np.frombuffer(render(), dtype=np.uint8)

        return self._cache.get(key, encoded).tobytes()

    def _describe(self, entry: Entry, answer: Answer) -> dict[str, Any]:
        """An answer as names and plain numbers."""
        predictor = self.library.predictor
        rows = zip(predictor.net.tasks, answer.probabilities, strict=True)
        named = [predictor.class_probabilities(task, torch.from_numpy(p)) for task, p in rows]
        classes = answer.classes
        return {
            "patches": answer.patches,
            "extent": answer.extent,
            "predictions": entry.predictions,
            "probabilities": [list(each.items()) for each in named],
            "count": len(answer.kept),
            "kept": answer.kept[:_MAX_KEPT].tolist(),
            "attention": answer.attention[:, :_MAX_KEPT].tolist(),
            "classes": None if classes is None else classes[:_MAX_KEPT].tolist(),
        }
