"""The page on loopback: it answers for the images of a library, and for nothing else.

Every address begins with a token that only the person who started it knows. Only GET is answered,
only for this machine's own names, and without what would let another page read the answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar

import uvicorn
from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from xstatic.pkg import leaflet

from ips.errors import ConfigError, IPSError
from ips.viewer.library import Entry, Library
from ips.viewer.showing import Showing
from ips.viewer.tiles import COLOURS, Colours, colour_bar

P = ParamSpec("P")
R = TypeVar("R")

HOST = "127.0.0.1"
_NAMES = {HOST, "localhost"}
_LONGEST = 512  # bytes of a path, and of a query
_MOST_HEADERS = 16_384  # bytes of all that a browser tells of itself
_WORKERS = min(4, os.cpu_count() or 1)
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_KEPT = {"cache-control": "private, max-age=3600"}  # the address says when the file was changed
_NEW = {"cache-control": "no-store"}
_KINDS = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}


def create_app(library: Library, *, token: str) -> FastAPI:
    """The page and what it asks for, all of it below ``/token/``."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    showing = Showing(library)
    pool = ThreadPoolExecutor(max_workers=_WORKERS, thread_name_prefix="ips-tile")

    async def off(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Done by a thread of the pool: reading and drawing must not hold up other requests."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(pool, lambda: work(*args, **kwargs))

    def known(number: str) -> Entry:
        entry = library.get(number)
        if entry is None:
            raise HTTPException(404, "no such image")
        return entry

    @app.get("/")
    async def page() -> Response:
        return _file("index.html")

    @app.get("/static/{name}")
    async def static(name: str) -> Response:
        return _file(name)

    @app.get("/api/run")
    async def run() -> Response:
        predictor = library.predictor
        facts = {
            "run": library.run.absolute().name,
            "tasks": list(predictor.net.tasks),
            "classes": predictor.patch_classes,
            "colours": COLOURS,
        }
        return _json(facts)

    @app.get("/api/images")
    async def images(since: Annotated[int, Query(ge=0, le=2**53)] = 0) -> Response:
        change, rows = library.rows(since)
        return _json({"change": change, "images": rows})

    @app.get("/api/images/{number}")
    async def image(number: str) -> Response:
        entry = known(number)
        library.want(entry)
        return _json(await off(showing.details, entry))

    @app.get("/api/images/{number}/annotations")
    async def annotations(number: str) -> Response:
        return _json(await off(showing.annotations, known(number)))

    @app.get("/tiles/{number}/{zoom}/{column}/{row}")
    async def tile(number: str, zoom: int, column: int, row: int) -> Response:
        return _picture(await off(showing.tile, known(number), zoom, column, row))

    @app.get("/attention/{number}/{zoom}/{column}/{row}")
    async def attention(
        number: str,
        zoom: int,
        column: int,
        row: int,
        task: Annotated[int, Query(ge=0)],
        colours: Colours = "viridis",
        above: Annotated[float, Query(ge=0, le=1, allow_inf_nan=False)] = 0.0,
    ) -> Response:
        look = partial(showing.attention_tile, task=task, colours=colours, above=round(above, 3))
        return _picture(await off(look, known(number), zoom, column, row))

    @app.get("/patches/{number}/{rank}")
    async def patch(number: str, rank: int) -> Response:
        return _picture(await off(showing.patch, known(number), rank))

    @app.get("/colours/{colours}")
    async def bar(colours: Colours) -> Response:
        return _picture(colour_bar(colours))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: Exception) -> Response:
        return PlainTextResponse("bad request", 400)

    @app.exception_handler(StarletteHTTPException)
    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, StarletteHTTPException)
        return PlainTextResponse(str(error.detail).lower(), error.status_code)

    @app.exception_handler(IPSError)
    async def unreadable(request: Request, error: Exception) -> Response:
        return PlainTextResponse(str(error).encode(errors="replace"), 422)

    app.add_middleware(_Guard, token=token)
    return app


def serve(library: Library, *, port: int, on_ready: Callable[[str], None]) -> None:
    """Serve until interrupted; ``on_ready`` receives the address. Port 0 takes a free one."""
    try:
        listener = socket.create_server((HOST, port))
    except OSError as error:
        raise ConfigError(
            f"--port {port}: cannot be used ({error.strerror}): give another"
        ) from error
    # Or the second half of an answer waits 40 ms for the first to be confirmed.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    token = secrets.token_urlsafe(16)
    config = uvicorn.Config(
        create_app(library, token=token),
        http="h11",
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


class _Guard:
    """Turns away what no page of ours would ask, and says so to the browser for the rest."""

    def __init__(self, app: ASGIApp, *, token: str) -> None:
        self.app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError("only HTTP is spoken here")

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = [(k.encode(), v.encode()) for k, v in _HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *extra]
            await send(message)

        trouble = self._trouble(scope)
        if trouble is not None:
            await PlainTextResponse(*trouble)(scope, receive, guarded)
            return
        path = scope["path"].removeprefix(f"/{self._token}")
        inner = {**scope, "path": path, "raw_path": path.encode()}
        await self.app(inner, receive, guarded)

    def _trouble(self, scope: Scope) -> tuple[str, int] | None:
        """What is wrong with a request, and the code for it."""
        if sum(len(key) + len(value) for key, value in scope["headers"]) > _MOST_HEADERS:
            return "headers too large", 431
        headers = {key.lower(): value for key, value in scope["headers"]}
        name = headers.get(b"host", b"").decode("latin-1").rsplit(":", 1)[0]
        if name not in _NAMES:
            return "wrong host", 421
        if scope["method"] != "GET":
            return "method not allowed", 405
        if len(scope["path"].encode()) > _LONGEST or len(scope["query_string"]) > _LONGEST:
            return "address too long", 414
        if headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers:
            return "no body is taken", 413
        start = scope["path"].split("/", 2)
        if len(start) < 3 or not secrets.compare_digest(start[1].encode(), self._token.encode()):
            return "not found", 404
        return None


@cache
def _statics() -> dict[str, tuple[bytes, str]]:
    """Every file that there is for the browser, by its name: no path is ever put together."""
    ours = files("ips.viewer") / "static"
    found = {item.name: item.read_bytes() for item in ours.iterdir()}
    theirs = Path(leaflet.BASE_DIR)
    found |= {name: (theirs / name).read_bytes() for name in ("leaflet.js", "leaflet.css")}
    return {name: (data, _KINDS[Path(name).suffix]) for name, data in found.items()}


def _file(name: str) -> Response:
    if name not in _statics():
        raise HTTPException(404, "not found")
    data, kind = _statics()[name]
    return Response(data, media_type=kind, headers={"cache-control": "no-cache"})


def _json(content: Any) -> Response:
    # In ASCII: a file's name need not be text that can be encoded.
    text = json.dumps(content, allow_nan=False)
    return Response(text, media_type="application/json", headers=_NEW)


def _picture(data: bytes | None) -> Response:
    if data is None:
        raise HTTPException(404, "not found")
    kind = "image/png" if data.startswith(b"\x89PNG") else "image/jpeg"
    return Response(data, media_type=kind, headers=_KEPT)
