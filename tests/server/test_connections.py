"""Connections of people without a token: they hold the server up for seconds, not for ever."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from sandbox.server import connections
from sandbox.server.connections import bounded
from tests.patience import given_time

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\n"


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answers at once for /refused, without reading; else when the whole body is there."""
    if scope["type"] != "http":
        return
    if scope["path"] != "/refused":
        while (message := await receive())["type"] == "http.request" and message.get("more_body"):
            pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def serving(most: int | None = None) -> AsyncIterator[tuple[str, int]]:
    line = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(application, http=bounded(most), lifespan="off", log_config=None, timeout_keep_alive=600)
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve(sockets=[line]))
    while not server.started:
        await asyncio.sleep(0)
    try:
        yield line.getsockname()
    finally:
        server.should_exit = True
        await task


@pytest.mark.parametrize(
    ("sent", "answered"),
    [
        (b"", 0),
        (b"POST / HTT", 0),
        (HEAD + b"X-Half: y", 0),
        (HEAD + b"Content-Length: 10\r\n\r\nabc", 0),
        (b"POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc", 1),
        (HEAD + b"Content-Length: 0\r\n\r\n" + HEAD, 1),
    ],
    ids=["nothing", "half a line", "half a head", "half a body", "half a body, refused", "half a second request"],
)
def test_a_request_that_is_never_finished_ends_its_connection(
    sent: bytes, answered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def attempt() -> int:
        async with serving() as place:
            reader, writer = await asyncio.open_connection(*place)
            writer.write(sent)
            heard = await asyncio.wait_for(_until_end(reader), 60)
            writer.close()
            return heard.count(b"200 OK")

    def with_limits(seconds: float) -> int:
        for name in ("HEAD", "BODY", "LEFTOVER"):
            monkeypatch.setattr(connections, name, seconds)
        return asyncio.run(attempt())

    assert given_time(with_limits, lambda found: found == answered) == answered


def test_a_head_that_comes_byte_by_byte_has_no_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD", 0.3)

    async def attempt() -> None:
        async with serving() as place:
            reader, writer = await asyncio.open_connection(*place)

            async def drip() -> None:
                while True:
                    writer.write(b"X")
                    await asyncio.sleep(0.02)

            dripping = asyncio.create_task(drip())
            await asyncio.wait_for(_until_end(reader), 60)
            dripping.cancel()
            writer.close()

    asyncio.run(attempt())


def test_connections_without_a_request_make_room_for_one_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD", 600)

    async def attempt() -> None:
        async with serving(most=8) as place:
            held = [await asyncio.open_connection(*place) for _ in range(30)]
            reader, writer = await asyncio.open_connection(*place)
            writer.write(HEAD + b"Content-Length: 0\r\nConnection: close\r\n\r\n")
            assert b"200 OK" in await asyncio.wait_for(_until_end(reader), 60)
            writer.close()
            await asyncio.wait_for(_until_end(held[0][0]), 60)  # the oldest had to go
            for _, each in held:
                each.close()

    asyncio.run(attempt())


async def _until_end(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return bytes(getattr(reader, "_buffer", b""))
