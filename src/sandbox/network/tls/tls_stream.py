"""TLS over a stream, as client or server.

`ssl.MemoryBIO` keeps OpenSSL away from the socket: bytes go in and bytes come out. This lets the handshake with the
tenant wait until upstream is connected, so that the gate can offer the protocol that upstream chose.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandbox.network.stream import Stream

RECORD = 64 * 1024


class TlsStream:
    """A `ByteStream` over TLS. Call `handshake` first."""

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
        """The protocol that ALPN selected."""
        return self._tls.selected_alpn_protocol()

    async def handshake(self) -> None:
        """Performs the handshake. Raises ssl.SSLError (certificate errors included) or OSError."""
        while True:
            try:
                self._tls.do_handshake()
                await self._flush()
                return
            except ssl.SSLWantReadError:
                await self._flush()
                await self._fill()
            except ssl.SSLError:
                await self._flush()  # send the alert that says what was wrong
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
        await self._lower.turns.end()
        while True:
            try:
                return self._tls.read(RECORD)
            except ssl.SSLWantReadError:
                if self._outgoing.pending:
                    await self._flush()  # the reply to a key update
                await self._fill()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                # Also without close_notify: HTTP's own framing shows whether the message is complete.
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
            pass  # unwrap also waits for the other side's close_notify, which we do not need
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
