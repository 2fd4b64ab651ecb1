"""TLS over a stream, at either end, and what a ClientHello asks for.

`ssl.MemoryBIO` keeps OpenSSL away from the socket: bytes go in, bytes come out. The handshake with the tenant
can so wait until upstream has been dialled, and the answer can be the very protocol upstream chose.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandbox.network.gate.stream import Stream

RECORD = 64 * 1024


class TlsStream:
    """A `ByteStream` in TLS. Call `handshake` first."""

    def __init__(self, lower: Stream, context: ssl.SSLContext, *, server_side: bool, host: str | None = None) -> None:
        self._lower = lower
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side, server_hostname=host)
        self._closed = False

    @property
    def ended(self) -> bool:
        return self._lower.ended or self._closed

    @property
    def protocol(self) -> str | None:
        """What ALPN agreed on."""
        return self._tls.selected_alpn_protocol()

    async def handshake(self) -> None:
        """Agrees on keys. Raises ssl.SSLError (of which certificate errors are a kind) or OSError."""
        while True:
            try:
                self._tls.do_handshake()
                await self._flush()
                return
            except ssl.SSLWantReadError:
                await self._flush()
                await self._fill()
            except ssl.SSLError:
                await self._flush()  # the alert says to the other side what was wrong
                raise

    def certificates(self) -> list[bytes]:
        """The other side's verified chain, DER, its own certificate first."""
        chain = getattr(self._tls, "get_verified_chain", None)
        if chain is not None:  # public since Python 3.13
            return list(chain())
        inner: Any = getattr(self._tls, "_sslobj", None)
        if hasattr(inner, "get_verified_chain"):
            return [ssl.PEM_cert_to_DER_cert(one.public_bytes()) for one in inner.get_verified_chain()]
        own = self._tls.getpeercert(binary_form=True)
        return [own] if own else []

    async def read(self) -> bytes:
        while True:
            try:
                return self._tls.read(RECORD)
            except ssl.SSLWantReadError:
                if self._outgoing.pending:
                    await self._flush()  # a key update's answer
                await self._fill()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                # Without close_notify too: HTTP's own framing says whether the message was whole.
                return b""

    async def write(self, data: bytes) -> None:
        if self._closed:
            raise ConnectionResetError("the connection is closed")
        if data:
            self._tls.write(data)
            await self._lower.write(self._outgoing.read())

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            self._tls.unwrap()
        except (ssl.SSLError, ValueError):
            pass  # it wants their close_notify as well; nobody waits for that
        if self._outgoing.pending:
            self._lower.write_soon(self._outgoing.read())
        self._lower.close()

    def abort(self) -> None:
        self._closed = True
        self._lower.abort()

    async def _flush(self) -> None:
        if self._outgoing.pending:
            await self._lower.write(self._outgoing.read())

    async def _fill(self) -> None:
        data = await self._lower.read()
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()


class Hello:
    """What a ClientHello asks for."""

    __slots__ = ("server_name", "protocols")

    def __init__(self, server_name: str | None, protocols: list[str]) -> None:
        self.server_name = server_name
        self.protocols = protocols


def read_hello(data: bytes) -> Hello:
    """Server name and ALPN of a ClientHello. Raises ValueError when it is not a whole, well-formed one."""
    try:
        return _hello(_handshake(data))
    except IndexError:
        raise ValueError("the ClientHello is cut short") from None


def _handshake(data: bytes) -> bytes:
    """The ClientHello message out of the records it came in (it may be spread over several)."""
    message, at = b"", 0
    while True:
        if data[at] != 22 or data[at + 1] != 3:
            raise ValueError("not a TLS handshake")
        size = int.from_bytes(data[at + 3 : at + 5], "big")
        if not 0 < size <= 16384:
            raise ValueError("a TLS record of impossible size")
        message += data[at + 5 : at + 5 + size]
        at += 5 + size
        if message[0] != 1:
            raise ValueError("not a ClientHello")
        if len(message) >= 4 and len(message) >= 4 + int.from_bytes(message[1:4], "big"):
            return message[4 : 4 + int.from_bytes(message[1:4], "big")]


def _hello(body: bytes) -> Hello:
    at = 2 + 32  # version, random
    at += 1 + body[at]  # session
    at += 2 + int.from_bytes(body[at : at + 2], "big")  # cipher suites
    at += 1 + body[at]  # compression
    end = at + 2 + int.from_bytes(body[at : at + 2], "big")
    at += 2
    name: str | None = None
    protocols: list[str] = []
    while at + 4 <= min(end, len(body)):
        kind, size = int.from_bytes(body[at : at + 2], "big"), int.from_bytes(body[at + 2 : at + 4], "big")
        content, at = body[at + 4 : at + 4 + size], at + 4 + size
        if len(content) != size:
            raise ValueError("an extension longer than its ClientHello")
        if kind == 0 and len(content) > 5 and content[2] == 0:
            name = content[5 : 5 + int.from_bytes(content[3:5], "big")].decode("ascii")
        elif kind == 16:
            inner = 2
            while inner < len(content):
                protocols.append(content[inner + 1 : inner + 1 + content[inner]].decode("latin-1"))
                inner += 1 + content[inner]
    return Hello(name, protocols)
