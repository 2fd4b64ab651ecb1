"""What one HTTP/2 connection can make the gate keep is bounded in bytes and in pieces."""

from __future__ import annotations

import asyncio
import sys

from sandbox.network.http.http2 import MAX_TABLE, Http2Body, Http2Side
from sandbox.network.stream import MOST_PIECES, Stream


class Side:
    async def acknowledge(self, stream_id: int, size: int) -> None:
        pass


def test_a_flood_of_empty_frames_costs_nothing_and_recurses_nowhere() -> None:
    async def main() -> None:
        body = Http2Body(Side(), 1, None)  # type: ignore[arg-type]
        for _ in range(50_000):
            body.feed(b"", 0)
        assert sys.getsizeof(body._data) < 1024
        for _ in range(50_000):
            body.feed(b"", 1)  # all padding
        reading = asyncio.ensure_future(body.read())
        await asyncio.sleep(0)
        body.feed(b"x", 1)
        assert await reading == b"x"

    asyncio.run(main())


def test_no_setting_makes_the_gate_remember_all_it_ever_said() -> None:
    side = Http2Side(Stream(), client=False)
    side._h2.initiate_connection()
    table_of_4_gib = b"\x00\x00\x06\x04\x00\x00\x00\x00\x00" + b"\x00\x01\xff\xff\xff\xff"
    side.receive(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + table_of_4_gib)
    assert side._h2.encoder.header_table_size == MAX_TABLE


def test_single_bytes_that_nobody_reads_stop_the_reading() -> None:
    class Transport(asyncio.Transport):
        paused = False

        def pause_reading(self) -> None:
            self.paused = True

    stream, transport = Stream(), Transport()
    stream._transport = transport
    for _ in range(MOST_PIECES):
        stream.data_received(b"x")
    assert transport.paused
