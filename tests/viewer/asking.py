"""Requests to the app, byte for byte as the server passes them on."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Message

TOKEN = "token"


@dataclass(frozen=True)
class Answered:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    app: ASGIApp,
    address: str,
    *,
    method: str = "GET",
    host: str | None = "127.0.0.1:8000",
    headers: dict[str, str] | None = None,
    token: str = TOKEN,
) -> Answered:
    """The response of an app to a request for an address below its token."""
    path, _, query = f"/{token}/{address}".partition("?")
    sent = dict(headers or {}) | ({} if host is None else {"host": host})
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote_to_bytes(path).decode("utf-8", "replace"),
        "raw_path": path.encode("utf-8", "replace"),
        "query_string": query.encode("utf-8", "replace"),
        "root_path": "",
        "headers": [(k.encode(), v.encode("latin-1", "replace")) for k, v in sent.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8000),
    }
    got: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        got.append(message)

    asyncio.run(app(scope, receive, send))  # type: ignore[arg-type]
    start = next(message for message in got if message["type"] == "http.response.start")
    found = {k.decode().lower(): v.decode("latin-1") for k, v in start["headers"]}
    return Answered(start["status"], found, b"".join(message.get("body", b"") for message in got))
