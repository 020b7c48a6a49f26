"""Connections that send a request too slowly, or do not read the response, are closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import pytest
import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from ips.viewer import connection
from ips.viewer.connection import Connection

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
LONG = 10  # seconds; only a failing test waits for it
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[None, None, None]]


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("hello")(scope, receive, send)


async def large(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse(bytes(2**26))(scope, receive, send)


def talk_to(app: Callable[..., Coroutine[None, None, None]], talk: Talk) -> None:
    async def session() -> None:
        config = uvicorn.Config(app, http=Connection, ws="none", lifespan="off", log_level="error")
        config.load()
        state = ServerState()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: Connection(config, state, {}, loop), "127.0.0.1", 0
        )
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            await asyncio.wait_for(talk(reader, writer), LONG)
            writer.close()
        while state.tasks or state.connections:
            await asyncio.sleep(0.01)

    asyncio.run(session())


async def until_closed(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:  # closed without the usual farewell
        return b""


@pytest.mark.parametrize("start", [b"", b"G", REQUEST[:-2], b"GET / HTTP/1.1\r\nX: "])
def test_half_a_request(monkeypatch: pytest.MonkeyPatch, start: bytes) -> None:
    monkeypatch.setattr(connection, "PATIENCE", 0.05)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        assert await until_closed(reader) == b""

    talk_to(hello, talk)


def test_bytes_now_and_then_do_not_keep_a_connection_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PATIENCE", 0.1)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(REQUEST[:-2])
        while not reader.at_eof() and reader.exception() is None:
            writer.write(b"x")
            await asyncio.sleep(0.01)

    talk_to(hello, talk)


def test_a_half_request_after_a_whole_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            writer.write(REQUEST)
            assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200")
        monkeypatch.setattr(connection, "PATIENCE", 0.05)
        writer.write(REQUEST[:9])
        assert await until_closed(reader) == b""

    talk_to(hello, talk)


def test_a_response_that_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PATIENCE", 0.05)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(REQUEST)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(0.5)
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert len(await until_closed(reader)) < 2**26

    talk_to(large, talk)
