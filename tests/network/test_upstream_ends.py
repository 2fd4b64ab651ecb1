"""An origin that leaves, idle or in the middle of its answer: programs inside hear of it at once."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable

import h2.config
import h2.connection
import h2.events
import pytest

from tests.network.furnished import Furnished
from tests.network.lab import Handler

pytestmark = pytest.mark.walls
Make = Callable[..., Furnished]

HALF = {"http/1.1": ["--http1.1"], "h2": ["--http2"]}


def http1(half: bool) -> Handler:
    """Answers one request, whole or half, and leaves."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n" + (b"ha" if half else b"full"))
        await writer.drain()

    return serve


def http2(half: bool) -> Handler:
    """The same over HTTP/2."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        connection.initiate_connection()
        while data := await reader.read(65536):
            for one in connection.receive_data(data):
                if isinstance(one, h2.events.RequestReceived):
                    connection.send_headers(one.stream_id, [(":status", "200"), ("content-length", "4")])
                    connection.send_data(one.stream_id, b"ha" if half else b"full", end_stream=not half)
                    writer.write(connection.data_to_send())
                    await writer.drain()
                    return
            writer.write(connection.data_to_send())

    return serve


WAYS = {"http/1.1": http1, "h2": http2}
NODE = {
    "http/1.1": """
const https = require('https'), agent = new https.Agent({keepAlive: true})
https.get(process.argv[1], {agent}, answer => {
    const {socket} = answer
    socket.on('close', () => console.log('closed'))
    answer.on('end', () => setImmediate(() => socket.ref())).resume()  // the agent lets an idle one go
})
""",
    "h2": """
const session = require('http2').connect(process.argv[1])
session.on('close', () => console.log('closed'))
session.request({':path': '/'}).resume()
""",
}


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here")
@pytest.mark.parametrize("protocol", WAYS)
def test_a_program_that_waits_for_the_end_of_an_idle_connection_sees_it(furnished: Make, protocol: str) -> None:
    place = furnished(protocols=[protocol])
    place.origins["api.test"].raw = WAYS[protocol](False)
    done = place.sandbox.exec(["node", "-e", NODE[protocol], place.url()], timeout=30)
    assert (done.exit_code, done.stdout) == (0, "closed\n"), done.stderr


@pytest.mark.parametrize("protocol", WAYS)
def test_half_an_answer_is_never_taken_for_a_whole_one(furnished: Make, protocol: str) -> None:
    place = furnished(protocols=[protocol])
    place.origins["api.test"].raw = WAYS[protocol](True)
    done = place.run("curl", "-sS", *HALF[protocol], place.url())
    assert done.stdout in ("ha", "") and done.exit_code not in (0, 28), done
    place.origins["api.test"].raw = None
    assert place.run("curl", "-sS", place.url()).exit_code == 0


@pytest.mark.parametrize("protocol", WAYS)
def test_an_origin_that_leaves_without_an_answer_is_a_502_with_the_reason(furnished: Make, protocol: str) -> None:
    async def leaves(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)

    place = furnished(protocols=[protocol])
    place.origins["api.test"].raw = leaves
    done = place.run("curl", "-sS", "-w", "%{http_code}", *HALF[protocol], place.url())
    assert "The sandbox could not reach" in done.stdout and done.stdout.endswith("502"), done
