"""Cache of the most recently used tiles of one file, bounded in bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future

from ips.images.image import Pixels

#: Enough for the tiles under one row of 256-px patches across a large slide.
CACHE_BYTES = 64 * 2**20


class TileCache:
    """A thread-safe cache that drops the least recently used tiles.

    The latest tile stays even if it alone exceeds ``limit``. Otherwise a file of one huge strip
    would be decoded again for every patch.
    """

    def __init__(self, *, limit: int = CACHE_BYTES) -> None:
        self.limit = limit
        self.nbytes = 0
        self._tiles: OrderedDict[Hashable, Pixels] = OrderedDict()
        self._pending: dict[Hashable, Future[Pixels]] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, decode: Callable[[], Pixels]) -> Pixels:
        """Return the tile ``key``; call ``decode`` if it is not cached.

        Threads decode in parallel, outside the lock. A thread that needs a tile which another one
        is decoding waits for its result or error.
        """
        with self._lock:
            tile = self._tiles.get(key)
            if tile is not None:
                self._tiles.move_to_end(key)
                return tile
            pending = self._pending.get(key)
            if pending is None:
                future = self._pending[key] = Future()
        if pending is not None:
            return pending.result()
        try:
            tile = decode()
        except BaseException as error:
            with self._lock:
                del self._pending[key]
            future.set_exception(error)
            raise
        with self._lock:
            del self._pending[key]
            self._tiles[key] = tile
            self.nbytes += tile.nbytes
            while self.nbytes > self.limit and len(self._tiles) > 1:
                _, oldest = self._tiles.popitem(last=False)
                self.nbytes -= oldest.nbytes
        future.set_result(tile)
        return tile
