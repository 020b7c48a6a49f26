"""The decoded tiles of one file that were used last, bounded by their bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

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
        self._lock = threading.Lock()

    def get(self, key: Hashable, decode: Callable[[], Pixels]) -> Pixels:
        """The tile ``key``, from ``decode`` if it is not held.

        Decoding happens outside the lock, so that threads decode side by side; two that miss the
        same tile at once both decode it, which costs time but never correctness.
        """
        with self._lock:
            tile = self._tiles.get(key)
            if tile is not None:
                self._tiles.move_to_end(key)
                return tile
        tile = decode()
        with self._lock:
            replaced = self._tiles.pop(key, None)
            self.held += tile.nbytes - (0 if replaced is None else replaced.nbytes)
            self._tiles[key] = tile
            while self.held > self.limit and len(self._tiles) > 1:
                _, oldest = self._tiles.popitem(last=False)
                self.held -= oldest.nbytes
        return tile
