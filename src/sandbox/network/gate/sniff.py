"""What a connection's first bytes are: TLS (and for whom), HTTP, something else, or not enough yet."""

from __future__ import annotations

import asyncio
import socket

TLS = b"\x16"  # a handshake record: how every TLS connection begins
MOST = 16384 + 5  # a TLS record and its header; no honest ClientHello or request line is longer


class Sniffed:
    """`kind` is "tls", "http", "other" or "more"; `name` is the SNI of a ClientHello, None when it has none."""

    __slots__ = ("kind", "name")

    def __init__(self, kind: str, name: str | None = None) -> None:
        self.kind = kind
        self.name = name


def sniff(data: bytes) -> Sniffed:
    """Judges the bytes so far. Never raises: what makes no sense is "other"."""
    if not data:
        return Sniffed("more")
    if data[0] == 0x16:
        return _tls(data)
    if data[0:1].isalpha():
        return _http(data)
    return Sniffed("other")


def _http(data: bytes) -> Sniffed:
    line, newline, _ = data[:MOST].partition(b"\n")
    method, space, _ = line.partition(b" ")
    if not method.isalpha() or len(method) > 20:
        return Sniffed("other")
    if not newline:
        # A line so long is a request's, if it is anything: whoever reads requests judges it.
        long = len(data) >= MOST
        return Sniffed("http" if long and line[len(method) : len(method) + 2] == b" /" else "other" if long else "more")
    # Redis' inline commands look like a method and a target, too; only HTTP ends the line with its version.
    return Sniffed("http" if space and line.rstrip(b"\r").rpartition(b" ")[2][:5] == b"HTTP/" else "other")


def _tls(data: bytes) -> Sniffed:
    hello = bytearray()
    at = 0
    while True:
        if len(data) < at + 5:
            return Sniffed("more" if data[at : at + 1] in (b"", b"\x16") else "other")
        length = int.from_bytes(data[at + 3 : at + 5], "big")
        if data[at] != 0x16 or data[at + 1] != 3 or not 0 < length <= 16384:
            return Sniffed("other")
        hello += data[at + 5 : at + 5 + length]
        if len(hello) >= 4:
            size = int.from_bytes(hello[1:4], "big")
            if hello[0] != 1 or size > 16384:
                return Sniffed("other")
            if len(hello) >= 4 + size:
                return _hello(bytes(hello[4 : 4 + size]))
        if len(data) < at + 5 + length:
            return Sniffed("more")
        at += 5 + length


def _hello(body: bytes) -> Sniffed:
    try:
        at = 34  # version and random
        at += 1 + body[at]  # session
        at += 2 + int.from_bytes(body[at : at + 2], "big")  # cipher suites
        at += 1 + body[at]  # compression methods
        if at == len(body):
            return Sniffed("tls")
        end = at + 2 + int.from_bytes(body[at : at + 2], "big")
        at += 2
        if end != len(body):
            return Sniffed("other")
        name = None
        while at < end:
            kind, size = (
                int.from_bytes(body[at : at + 2], "big"),
                int.from_bytes(body[at + 2 : at + 4], "big"),
            )
            if at + 4 + size > end:
                return Sniffed("other")
            if kind == 0:
                if name is not None:
                    return Sniffed("other")  # two names: somebody hopes that we and the server read different ones
                name = _server_name(body[at + 4 : at + 4 + size])
            at += 4 + size
        return Sniffed("tls", name)
    except (IndexError, ValueError):
        return Sniffed("other")


def _server_name(data: bytes) -> str:
    """The one host name of a server_name extension. Raises ValueError for any other content."""
    size = int.from_bytes(data[3:5], "big")
    if len(data) != 5 + size or int.from_bytes(data[:2], "big") != 3 + size or data[2] != 0 or not size:
        raise ValueError("not one host name")
    return data[5:].decode("ascii")


async def peek(client: socket.socket, at_least: int = 1) -> bytes:
    """The bytes that wait in `client`, left unread: at least so many, fewer only when no more will come."""
    if at_least == 1:
        try:
            return client.recv(MOST, socket.MSG_PEEK)
        except BlockingIOError:
            pass
    # Level-triggered readiness would spin on bytes that stay unread; the mark makes the kernel wait for more.
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, at_least)
    try:
        await readable(client)
        return client.recv(MOST, socket.MSG_PEEK)
    finally:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


async def readable(client: socket.socket) -> None:
    """Waits until `client` has something to read, or has ended."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    number = client.fileno()
    loop.add_reader(number, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(number)


async def first_bytes(client: socket.socket) -> tuple[bytes, Sniffed]:
    """Peeks until the bytes can be judged. Callers set the time limit."""
    seen = b""
    while True:
        data = await peek(client, len(seen) + 1)
        found = sniff(data)
        if found.kind != "more":
            return data, found
        if len(data) <= len(seen) or len(data) >= MOST:
            return data, Sniffed("other")  # the end, or no end
        seen = data


async def exactly(client: socket.socket, size: int) -> bytes:
    """The next `size` bytes, taken. Raises ConnectionAbortedError when the stream ends before them."""
    data = b""
    while len(data) < size:
        more = await asyncio.get_running_loop().sock_recv(client, size - len(data))
        if not more:
            raise ConnectionAbortedError("the stream ended")
        data += more
    return data
