"""A small server of files on loopback, with range requests, which counts what it sends."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class RangeServer(ThreadingHTTPServer):
    """Serves the files of a folder; ``sent`` counts the bytes of their content.

    A name that starts with ``forbidden`` is answered with 403. Without ``ranges``, every request is
    answered with the whole file.
    """

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder, self.sent, self.ranges = folder, 0, True

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"


class _Handler(BaseHTTPRequestHandler):
    server: RangeServer

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        path = self.server.folder / self.path.lstrip("/")
        if path.name.startswith("forbidden"):
            self.send_error(403)
            return
        if not path.is_file():
            self.send_error(404)
            return
        size, wanted = path.stat().st_size, self.headers.get("Range")
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", wanted or "") if self.server.ranges else None
        self.send_response(206 if match else 200)
        first, last = 0, size - 1
        if match:
            first, last = int(match[1]), min(int(match[2] or last), last)
            self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.send_header("Content-Length", str(last + 1 - first))
        self.send_header("ETag", f'"{path.stat().st_mtime_ns}"')
        self.end_headers()
        if body:
            with path.open("rb") as file:
                file.seek(first)
                data = file.read(last + 1 - first)
            self.server.sent += len(data)
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def range_server(folder: Path) -> Iterator[RangeServer]:
    """A server that ends with the block."""
    server = RangeServer(folder)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
