"""Web server of the viewer: serves the page and its images, on this machine only.

Every URL path begins with a random token, which only the user who started the viewer knows. The
server answers only GET requests whose Host header names this machine. Its response headers keep
other web pages from reading a response.
"""

from __future__ import annotations

import json
import re
import secrets
import socket
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from xstatic.pkg import leaflet

from ips.errors import ConfigError, IPSError
from ips.viewer.connection import Connection
from ips.viewer.library import Entry, Library, Queue
from ips.viewer.renderer import Renderer
from ips.viewer.tiles import COLOUR_MAPS, SHARE_RANGE, ColourMap, MapStyle, render_colour_map

HOST = "127.0.0.1"
_HOST_HEADER = re.compile(rb"(127\.0\.0\.1|localhost)(:[0-9]{1,5})?")
_MAX_ADDRESS = 512  # bytes of a URL path, and of a query string
_MAX_HEADERS = 16_384  # bytes of all headers of a request
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_CACHED = {"cache-control": "private, max-age=3600"}  # the URL has the file's modification time
_NOT_CACHED = {"cache-control": "no-store"}
_MEDIA_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}


async def _find_entry(request: Request, entry_id: str) -> Entry:
    entry = request.app.state.library.entries.get(entry_id)
    if entry is None:
        raise HTTPException(404, "no such image")
    return entry  # type: ignore[no-any-return]


_Entry = Annotated[Entry, Depends(_find_entry)]


async def _check_number(entry: _Entry, number: int) -> int:
    if not 0 <= number < len(entry.images):
        raise HTTPException(404, "no such image")
    return number


_Number = Annotated[int, Depends(_check_number)]
_Style = Annotated[MapStyle, Query()]


def create_app(library: Library, *, token: str) -> FastAPI:
    """Create the app that serves the page and its data, all below ``/TOKEN/``."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.state.library = library
    renderer = Renderer(library)

    # FastAPI runs handlers that are not ``async`` in a thread: those that read files or render.

    @app.get("/")
    async def page() -> Response:
        return _static_files()["index.html"]

    @app.get("/static/{name}")
    async def static(name: str) -> Response:
        if name not in _static_files():
            raise HTTPException(404, "not found")
        return _static_files()[name]

    @app.get("/api/run")
    async def run() -> Response:
        tasks, classes = list(library.predictor.net.tasks), library.predictor.patch_classes
        info = {"tasks": tasks, "classes": classes, "labelled": library.labelled}
        looks = {"colour_maps": COLOUR_MAPS, "share_range": SHARE_RANGE}
        return _json({"run": library.name, **info, **looks})

    @app.get("/api/images")
    async def images(since: Annotated[int, Query(ge=0, le=2**53)] = 0) -> Response:
        queue = library.status()  # before the rows: the page stops asking when nothing is busy
        version, rows = library.rows(since)
        return _json({"version": version, "images": rows, "queue": queue})

    @app.get("/api/queue")
    async def queue(asked: Annotated[Queue, Query()]) -> Response:
        library.set_queue(asked)
        return _json(library.status())

    # An entry is one image, or several of a patient, which are numbered from 0.

    @app.get("/api/images/{entry_id}")
    def answer(entry: _Entry) -> Response:
        library.predict_next(entry)
        return _json(renderer.answer(entry))

    @app.get("/api/images/{entry_id}/{number}")
    def image(entry: _Entry, number: _Number) -> Response:
        return _json(renderer.details(entry, number))

    @app.get("/api/images/{entry_id}/{number}/annotations")
    def annotations(entry: _Entry, number: _Number) -> Response:
        return _json(renderer.annotations(entry, number))

    @app.get("/tiles/{entry_id}/{number}/{zoom}/{column}/{row}")
    def tile(entry: _Entry, number: _Number, zoom: int, column: int, row: int) -> Response:
        return _picture(renderer.tile(entry, number, zoom, column, row))

    @app.get("/attention/{entry_id}/{number}/{zoom}/{column}/{row}")
    def attention(
        entry: _Entry, number: _Number, zoom: int, column: int, row: int, style: _Style
    ) -> Response:
        return _picture(renderer.attention_tile(entry, number, zoom, column, row, style))

    @app.get("/thumbnails/{entry_id}/{number}")
    def thumbnail(entry: _Entry, number: _Number) -> Response:
        data = renderer.thumbnail(entry, number)
        return Response(status_code=204) if data is None else _picture(data)

    @app.get("/thumbnails/{entry_id}/{number}/attention")
    def attention_thumbnail(entry: _Entry, number: _Number, style: _Style) -> Response:
        return _picture(renderer.attention_thumbnail(entry, number, style))

    @app.get("/patches/{entry_id}/{rank}")
    def patch(entry: _Entry, rank: int) -> Response:
        return _picture(renderer.patch(entry, rank))

    @app.get("/colour-maps/{colour_map}")
    async def legend(colour_map: ColourMap) -> Response:
        return _picture(render_colour_map(colour_map))

    for kind in (RequestValidationError, StarletteHTTPException, IPSError):
        app.add_exception_handler(kind, _refuse)
    app.add_middleware(_RequestGuard, token=token)
    return app


async def _refuse(request: Request, error: Exception) -> Response:
    if isinstance(error, StarletteHTTPException):
        return PlainTextResponse(str(error.detail).lower(), error.status_code)
    if isinstance(error, IPSError):
        return PlainTextResponse(str(error).encode(errors="replace"), 422)
    return PlainTextResponse("bad request", 400)


def serve(library: Library, *, port: int, on_ready: Callable[[str], None]) -> None:
    """Serve until interrupted; port 0 picks a free one, ``on_ready`` receives the address."""
    try:
        listener = socket.create_server((HOST, port))
    except OSError as error:
        raise ConfigError(
            f"--port {port}: cannot be used ({error.strerror}): choose another port"
        ) from error
    # Turn off Nagle's algorithm, which delays the second packet of a response by up to 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    token = secrets.token_urlsafe(16)
    config = uvicorn.Config(
        create_app(library, token=token),
        http=Connection,
        ws="none",
        lifespan="off",
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    with listener:
        library.start()
        try:
            on_ready(f"http://{HOST}:{listener.getsockname()[1]}/{token}/")
            uvicorn.Server(config).run(sockets=[listener])
        finally:
            library.close()


class _RequestGuard:
    """Rejects requests that the page never makes, and adds security headers to every response."""

    def __init__(self, app: ASGIApp, *, token: str) -> None:
        self.app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError("only HTTP is supported")

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        problem = self._problem(scope)
        if problem is not None:
            await PlainTextResponse(*problem)(scope, receive, send_with_headers)
            return
        path = scope["path"].removeprefix(f"/{self._token}")
        inner = {**scope, "path": path, "raw_path": path.encode()}
        await self.app(inner, receive, send_with_headers)

    def _problem(self, scope: Scope) -> tuple[str, int] | None:
        """Error message and status code of a bad request; None if the request is valid."""
        if sum(len(key) + len(value) for key, value in scope["headers"]) > _MAX_HEADERS:
            return "headers too large", 431
        headers = {key.lower(): value for key, value in scope["headers"]}
        hosts = [value for key, value in scope["headers"] if key.lower() == b"host"]
        if len(hosts) != 1 or not _HOST_HEADER.fullmatch(hosts[0]):
            return "wrong host", 421
        if scope["method"] != "GET":
            return "method not allowed", 405
        if len(scope["path"].encode()) > _MAX_ADDRESS or len(scope["query_string"]) > _MAX_ADDRESS:
            return "address too long", 414
        if headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers:
            return "no body is accepted", 413
        start = scope["path"].split("/", 2)
        if len(start) < 3 or not secrets.compare_digest(start[1].encode(), self._token.encode()):
            return "not found", 404
        return None


@cache
def _static_files() -> dict[str, Response]:
    """Responses by file name; no file path is ever built from a request."""
    own, leaflet_folder = files("ips.viewer") / "static", Path(leaflet.BASE_DIR)
    found = {item.name: item.read_bytes() for item in own.iterdir()}
    found |= {name: (leaflet_folder / name).read_bytes() for name in ("leaflet.js", "leaflet.css")}
    headers = {"cache-control": "no-cache"}
    return {
        name: Response(data, media_type=_MEDIA_TYPES[Path(name).suffix], headers=headers)
        for name, data in found.items()
    }


def _json(content: Any) -> Response:
    # Escaped to ASCII, because UTF-8 cannot encode every file name.
    text = json.dumps(content, allow_nan=False)
    return Response(text, media_type="application/json", headers=_NOT_CACHED)


def _picture(data: bytes | None) -> Response:
    if data is None:
        raise HTTPException(404, "not found")
    media_type = "image/png" if data.startswith(b"\x89PNG") else "image/jpeg"
    return Response(data, media_type=media_type, headers=_CACHED)
