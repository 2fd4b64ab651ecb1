"""Passing bytes: whole, in order, with ends and resets where they belong, and no more held than the kernel holds."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.network.gate.relay import CHUNK, Relay


def pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of a TCP connection, the second for the gate."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        outer = socket.create_connection(server.getsockname())
        inner, _ = server.accept()
    inner.setblocking(False)
    outer.settimeout(20)
    return outer, inner


class Running:
    def __init__(self) -> None:
        self.client, gate_client = pair()
        self.server, gate_server = pair()
        self.orderly: bool | None = None
        self.relay: Relay | None = None
        self._sockets = (gate_client, gate_server)
        self.thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self.thread.start()

    async def _run(self) -> None:
        self.relay = Relay(*self._sockets)
        self.orderly = await self.relay.run()
        for sock in self._sockets:
            sock.close()


@contextmanager
def running() -> Iterator[Running]:
    one = Running()
    yield one
    one.client.close()
    one.server.close()
    one.thread.join(20)
    assert not one.thread.is_alive()


def read_all(sock: socket.socket) -> bytes:
    return b"".join(iter(lambda: sock.recv(CHUNK), b""))


def test_bytes_and_ends_go_both_ways() -> None:
    with running() as one:
        one.client.sendall(b"question")
        one.client.shutdown(socket.SHUT_WR)
        assert read_all(one.server) == b"question"
        one.server.sendall(b"answer after the question's end")
        one.server.shutdown(socket.SHUT_WR)
        assert read_all(one.client) == b"answer after the question's end"
        one.thread.join(20)
        assert one.orderly is True


def test_a_large_stream_arrives_whole_both_ways_at_once() -> None:
    data = os.urandom(1 << 20) * 40
    with running() as one:

        def send(sock: socket.socket) -> None:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)

        senders = [threading.Thread(target=send, args=(sock,)) for sock in (one.client, one.server)]
        sums: dict[str, str] = {}

        def receive(name: str, sock: socket.socket) -> None:
            digest = hashlib.sha256()
            while piece := sock.recv(CHUNK):
                digest.update(piece)
            sums[name] = digest.hexdigest()

        readers = [threading.Thread(target=receive, args=pair) for pair in (("c", one.client), ("s", one.server))]
        for thread in senders + readers:
            thread.start()
        for thread in senders + readers:
            thread.join(60)
        assert sums == dict.fromkeys("cs", hashlib.sha256(data).hexdigest())
        assert one.relay is not None and one.relay.sent.total == one.relay.received.total == len(data)


def test_a_reset_on_one_side_resets_the_other() -> None:
    with running() as one:
        one.client.sendall(b"x")
        assert one.server.recv(1) == b"x"
        one.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.client.close()
        with pytest.raises(ConnectionResetError):
            one.server.recv(1)
        one.thread.join(20)
        assert one.orderly is False


def test_a_side_that_does_not_read_stops_the_other_from_sending() -> None:
    with running() as one:
        one.client.setblocking(False)
        sent = 0
        piece = bytes(1 << 20)
        while True:  # until nothing moves any more: the kernel's buffers and one pipe are full
            try:
                sent += one.client.send(piece)
            except BlockingIOError:
                import select

                if not select.select([], [one.client], [], 1.0)[1]:
                    break
            assert sent < 64 << 20
        received = 0
        one.client.shutdown(socket.SHUT_WR)
        while data := one.server.recv(CHUNK):
            received += len(data)
        assert received == sent


def test_the_gate_can_break_it_off() -> None:
    with running() as one:
        one.client.sendall(b"x")
        assert one.server.recv(1) == b"x"
        relay = one.relay
        assert relay is not None
        relay._loop.call_soon_threadsafe(relay.abort)
        with pytest.raises(ConnectionResetError):
            one.client.recv(1)


@settings(max_examples=15)
@given(st.lists(st.integers(1, 3 * CHUNK), min_size=1, max_size=8))
def test_pieces_of_any_size_arrive_in_order(sizes: list[int]) -> None:
    data = os.urandom(sum(sizes))
    with running() as one:

        def send() -> None:
            at = 0
            for size in sizes:
                one.client.sendall(data[at : at + size])
                at += size
            one.client.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        assert read_all(one.server) == data
        sender.join(20)
