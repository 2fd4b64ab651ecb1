"""Which protocol a connection's first bytes are: TLS, HTTP, another, or not enough yet. The bytes stay unread."""

from __future__ import annotations

import asyncio
import socket

from sandbox.network.tls.client_hello import HANDSHAKE, MAX_RECORD, ClientHello, read_client_hello

MOST = MAX_RECORD + 5  # a TLS record and its header; no ordinary ClientHello or request line is longer
MAX_METHOD = 20


class Detected:
    """`kind` is "tls", "http", "other" or "more"; `hello` is the ClientHello of TLS."""

    __slots__ = ("kind", "hello")

    def __init__(self, kind: str, hello: ClientHello | None = None) -> None:
        self.kind = kind
        self.hello = hello


def detect(data: bytes) -> Detected:
    """Classifies the bytes so far. Never raises: malformed bytes are "other"."""
    if not data:
        return Detected("more")
    if data.startswith(HANDSHAKE):
        return _tls(data)
    return Detected(_http(data))


def _tls(data: bytes) -> Detected:
    try:
        hello = read_client_hello(data)
    except ValueError:
        return Detected("other")
    return Detected("more") if hello is None else Detected("tls", hello)


def _http(data: bytes) -> str:
    line, newline, _ = data[:MOST].partition(b"\n")
    method, space, _ = line.partition(b" ")
    if not method.isalpha() or len(method) > MAX_METHOD:
        return "other"
    if newline:
        # Redis' inline commands also look like a method and a target. Only HTTP ends the line with its version.
        return "http" if space and line.rstrip(b"\r").rpartition(b" ")[2][:5] == b"HTTP/" else "other"
    if len(data) < MOST:
        return "more"
    # A line this long can only be a request's. The HTTP parser refuses it with the right status.
    return "http" if line[len(method) :].lower().startswith((b" /", b" http://")) else "other"


async def peek(client: socket.socket, at_least: int = 1, most: int = MOST) -> bytes:
    """The bytes that are waiting in `client`, left unread. Waits for `at_least` bytes, or the end of the stream."""
    if at_least == 1:
        try:
            return client.recv(most, socket.MSG_PEEK)
        except BlockingIOError:
            pass
    # Unread bytes keep the socket readable, and we would spin. The low-water mark makes the kernel wait for more.
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, at_least)
    try:
        await readable(client)
        return client.recv(most, socket.MSG_PEEK)
    finally:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


async def readable(client: socket.socket) -> None:
    """Waits until `client` is readable or has ended."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    number = client.fileno()
    loop.add_reader(number, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(number)


async def first_bytes(client: socket.socket) -> tuple[bytes, Detected]:
    """Peeks until the protocol is known. Callers set the time limit."""
    seen = b""
    while True:
        data = await peek(client, len(seen) + 1)
        found = detect(data)
        if found.kind != "more":
            return data, found
        if len(data) <= len(seen) or len(data) >= MOST:
            return data, Detected("other")  # the stream ended, or is too long
        seen = data


async def exactly(client: socket.socket, size: int) -> bytes:
    """Reads the next `size` bytes. Raises ConnectionAbortedError when the stream ends before that."""
    data = b""
    while len(data) < size:
        more = await asyncio.get_running_loop().sock_recv(client, size - len(data))
        if not more:
            raise ConnectionAbortedError("the stream ended")
        data += more
    return data
