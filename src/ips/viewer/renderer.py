"""Render what the viewer page shows of one image: tiles, attention, patches, text."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
import torch

from ips.annotations import find_annotations
from ips.errors import IPSError
from ips.images import Image
from ips.images.tile_cache import TileCache
from ips.viewer.answers import Answer
from ips.viewer.images import annotation_shapes
from ips.viewer.library import Entry, Library
from ips.viewer.tiles import (
    TICKS,
    AttentionTiles,
    MapStyle,
    find_tile,
    max_zoom,
    render_patch,
    render_thumbnail,
    render_tile,
)

_CACHE_BYTES = 48 * 2**20  # memory limit for encoded tiles
_PART_FACTS = ("image", "extent", "magnification", "shares")
_MAX_KEPT = 500  # maximum number of patches per image that are outlined and listed


class Renderer:
    """Renders images for the viewer page; its methods are safe to call from several threads.

    The images of the last requested entry stay open. A PNG or JPEG therefore stays decoded in
    memory while the page shows it; the prediction of the same image uses the same pixels.
    """

    def __init__(self, library: Library) -> None:
        self.library = library
        self._current: tuple[str, dict[int, Image]] = ("", {})  # entry and its open images
        self._cache = TileCache(limit=_CACHE_BYTES)
        self._thumbnails = threading.Lock()  # one at a time: each may decode a whole image
        self._workers = threading.Semaphore(min(4, os.cpu_count() or 1))  # limits memory

    def tile(self, entry: Entry, number: int, zoom: int, column: int, row: int) -> bytes | None:
        """A tile of an image as JPEG or PNG, None outside the image."""
        image, modified = self._open(entry, number)
        tile = find_tile(image, zoom, column, row)
        if tile is None:
            return None
        return self._cached((entry.id, number, modified, tile), lambda: render_tile(image, tile))

    def attention_tile(
        self, entry: Entry, number: int, zoom: int, column: int, row: int, style: MapStyle
    ) -> bytes | None:
        """A tile of an image's attention map of a task as PNG, None outside the image."""
        if (maps := self._maps(entry, number, style)) is None:
            return None
        image, modified = self._open(entry, number)
        tile = find_tile(image, zoom, column, row)
        if tile is None:
            return None
        size = image.dimensions
        return self._cached(
            (entry.id, modified, tile, style), lambda: maps.render(tile, style, size=size)
        )

    def attention_thumbnail(self, entry: Entry, number: int, style: MapStyle) -> bytes | None:
        """A small picture of an image's attention map as PNG, to lay over its thumbnail."""
        if (maps := self._maps(entry, number, style)) is None:
            return None
        image, modified = self._open(entry, number)
        key = (entry.id, modified, "thumbnail", style)
        return self._cached(key, lambda: maps.render_area(image.bounds, style))

    def patch(self, entry: Entry, rank: int) -> bytes | None:
        """A thumbnail of a kept patch as PNG, None if there is no such patch."""
        answer, _ = self.library.answer(entry) or (None, None)
        if answer is None or not 0 <= rank < min(len(answer.kept), _MAX_KEPT):
            return None
        x, y = answer.kept[rank].tolist()
        part = answer.parts[answer.part_numbers[rank]]
        image, modified = self._open(entry, part.image)
        key = (entry.id, modified, rank)
        return self._cached(key, lambda: render_patch(image, x, y, part.extent))

    def thumbnail(self, entry: Entry, number: int) -> bytes | None:
        """A small picture of an image as JPEG, None if it takes too long or is damaged."""
        with self._thumbnails, suppress(IPSError):
            image, modified = self.library.images.open(entry.images[number].file)
            key = (entry.id, number, modified, "thumbnail")
            return self._cached(key, lambda: render_thumbnail(image) or b"") or None
        return None

    def answer(self, entry: Entry) -> dict[str, Any]:
        """What is predicted for an entry, with its patches; empty before it is predicted."""
        found = self.library.answer(entry)
        return {} if found is None else self._describe(entry, *found)

    def details(self, entry: Entry, number: int) -> dict[str, Any]:
        """Everything the page needs to show an image, or the reason why it cannot be shown."""
        try:
            image, modified = self._open(entry, number)
        except IPSError as error:
            return {"error": str(error)}
        width, height = image.dimensions
        return {
            "modified": str(modified),  # has too many digits for a JavaScript number
            "width": width,
            "height": height,
            "zoom": max_zoom(image),
            "bounds": list(image.bounds),
            "mpp": None if image.mpp is None else image.mpp[0],
            "annotated": self._annotations(entry, number) is not None,
        }

    def annotations(self, entry: Entry, number: int) -> list[dict[str, Any]]:
        """The annotated shapes of an image, empty if it has no annotations."""
        path = self._annotations(entry, number)
        return [] if path is None else annotation_shapes(path, self._open(entry, number)[0])

    def _annotations(self, entry: Entry, number: int) -> Path | None:
        return find_annotations(entry.images[number].file, self.library.annotations)

    def _maps(self, entry: Entry, number: int, style: MapStyle) -> AttentionTiles | None:
        """The maps of a part of an image, None if there is no such part or task."""
        answer, parts = self.library.answer(entry) or (None, [])
        if answer is None or style.part >= len(parts) or style.task >= len(answer.spreads):
            return None
        return parts[style.part] if answer.parts[style.part].image == number else None

    def _open(self, entry: Entry, number: int) -> tuple[Image, int | None]:
        image, modified = self.library.images.open(entry.images[number].file)
        # Images of the previous entry are not closed: another thread may still read them.
        current = self._current if self._current[0] == entry.id else (entry.id, {})
        current[1][number] = image
        self._current = current
        return image, modified

    def _cached(self, key: tuple[Any, ...], render: Callable[[], bytes]) -> bytes:
        def encode() -> npt.NDArray[np.uint8]:
            with self._workers:
                return np.frombuffer(render(), dtype=np.uint8)

        return self._cache.get(key, encode).tobytes()

    def _describe(self, entry: Entry, answer: Answer, maps: list[AttentionTiles]) -> dict[str, Any]:
        """Convert an answer to JSON values, with class names."""
        predictor = self.library.predictor
        pairs = zip(predictor.net.tasks, answer.probabilities, strict=True)
        by_name = [predictor.class_probabilities(task, torch.from_numpy(p)) for task, p in pairs]
        classes = answer.classes
        return {
            "key": str(crc32(answer.attention.tobytes())),  # of another prediction, another one
            "patches": answer.patches,
            "screened": answer.screened,
            "tissue": predictor.config.patches.tissue is not None,
            "parts": [{name: getattr(part, name) for name in _PART_FACTS} for part in answer.parts],
            "part_numbers": answer.part_numbers[:_MAX_KEPT].tolist(),
            "predictions": entry.predictions,
            "probabilities": [list(each.items()) for each in by_name],
            "count": len(answer.kept),
            "kept": answer.kept[:_MAX_KEPT].tolist(),
            "attention": answer.attention[:, :_MAX_KEPT].tolist(),
            "ratios": answer.ratios[:, :_MAX_KEPT].tolist(),
            "classes": None if classes is None else classes[:_MAX_KEPT].tolist(),
            "scales": [maps[0].ratios(i, TICKS).tolist() for i in range(len(answer.spreads))],
            "spreads": [{"text": str(s), "uniform": s.uniform} for s in answer.spreads],
        }
