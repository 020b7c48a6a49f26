"""The decoded tiles of one file that were used last, bounded by their bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future

from ips.images.image import Pixels

#: Enough for the tiles under one row of 256-px patches across a large slide.
CACHE_BYTES = 64 * 2**20


class TileCache:
    """Least recently used tiles go first; shared by all threads of a handle.

    The latest tile stays even if it alone exceeds ``limit``: a file of one enormous strip would
    otherwise be decoded anew for every patch.
    """

    def __init__(self, *, limit: int = CACHE_BYTES) -> None:
        self.limit = limit
        self.held = 0
        self._tiles: OrderedDict[Hashable, Pixels] = OrderedDict()
        self._coming: dict[Hashable, Future[Pixels]] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, decode: Callable[[], Pixels]) -> Pixels:
        """The tile ``key``, from ``decode`` if it is not held.

        Decoding happens outside the lock, so that threads decode side by side; one that misses a
        tile which another is decoding waits for that one's result, or its error.
        """
        with self._lock:
            tile = self._tiles.get(key)
            if tile is not None:
                self._tiles.move_to_end(key)
                return tile
            theirs = self._coming.get(key)
            if theirs is None:
                ours = self._coming[key] = Future()
        if theirs is not None:
            return theirs.result()
        try:
            tile = decode()
        except BaseException as error:
            with self._lock:
                del self._coming[key]
            ours.set_exception(error)
            raise
        with self._lock:
            del self._coming[key]
            self._tiles[key] = tile
            self.held += tile.nbytes
            while self.held > self.limit and len(self._tiles) > 1:
                _, oldest = self._tiles.popitem(last=False)
                self.held -= oldest.nbytes
        ours.set_result(tile)
        return tile
