"""Connections to the hosts that a tenant talks to: dialled, verified and reused.

Each tenant connection has its own `Upstreams`, so two tenants' requests never share a connection.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from typing import TYPE_CHECKING

from sandbox.errors import ConfigError, Denied
from sandbox.network.destination import Destination
from sandbox.network.http.body import EMPTY, Whole
from sandbox.network.http.http1_upstream import Http1Upstream, UpstreamError
from sandbox.network.http.http2_upstream import Http2Upstream
from sandbox.network.stream import Stream
from sandbox.network.tls.tls_stream import TlsStream

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sandbox.network.destination import GateContext
    from sandbox.network.http.message import Request, Response
    from sandbox.network.intercept.hooks import HookRunner
    from sandbox.network.stream import ByteStream

    Upstream = Http1Upstream | Http2Upstream
    Endpoint = tuple[str, str, int]

HTTP1, HTTP2 = "http/1.1", "h2"
HANDSHAKE_TIMEOUT = 30.0


class Trust:
    """The authorities that upstream certificates are verified against: the system's and the configured ones.

    Reading the system's store takes 20 ms or more, so it happens once for each offer of protocols, in a thread. `warm`
    does it before anyone waits for it.
    """

    def __init__(self, ca_certificates: Sequence[str]) -> None:
        self._files = tuple(ca_certificates)
        self._contexts: dict[tuple[str, ...], ssl.SSLContext] = {}
        self._lock = threading.Lock()

    def warm(self) -> None:
        """Prepares the two usual offers in the background."""
        offers: list[tuple[str, ...]] = [(HTTP2, HTTP1), (HTTP1,)]
        # Not a daemon: a process that exits while OpenSSL reads certificates crashes unless it waits.
        threading.Thread(target=self._prepare, args=(offers,), name="gate-trust").start()

    def _prepare(self, offers: list[tuple[str, ...]]) -> None:
        try:
            for one in offers:
                self._context(one)
        except ConfigError:
            pass  # raised again for the first connection

    async def context(self, protocols: tuple[str, ...]) -> ssl.SSLContext:
        """A client context that offers `protocols`. Raises ConfigError for an invalid certificate file."""
        known = self._contexts.get(protocols)
        return known if known is not None else await asyncio.to_thread(self._context, protocols)

    def _context(self, protocols: tuple[str, ...]) -> ssl.SSLContext:
        with self._lock:
            if protocols in self._contexts:
                return self._contexts[protocols]
            context = ssl.create_default_context()
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            for file in self._files:
                try:
                    context.load_verify_locations(file)
                except (OSError, ssl.SSLError) as problem:
                    raise ConfigError(
                        "cannot read certificates from {name!r}: {problem}",
                        name=file,
                        problem=problem,
                        path="network.ca_certificates",
                    ) from None
            if protocols:
                context.set_alpn_protocols(list(protocols))
            self._contexts[protocols] = context
            return context


class Upstreams:
    """The upstream connections of one tenant connection."""

    def __init__(self, context: GateContext, trust: Trust, hooks: HookRunner) -> None:
        self._context, self._trust, self._hooks = context, trust, hooks
        self._open: dict[Endpoint, list[Upstream]] = {}
        self._failed: dict[Endpoint, Exception] = {}
        self._opening = asyncio.Lock()
        self._closed = False
        self._offer: tuple[str, ...] = (HTTP1,)
        self.when_gone: Callable[[], None] | None = None  # called when the last connection has ended

    async def agree(self, destination: Destination, offer: tuple[str, ...]) -> str:
        """Connects to `destination` and returns the protocol it chose from `offer`. A failure is kept for the first
        request: only an HTTP response can say what went wrong."""
        self._offer = offer
        place = ("https", destination.host, destination.port)
        try:
            upstream = await self._dial(place)
            self._open[place] = [upstream]
        except (Denied, UpstreamError) as problem:
            self._failed[place] = problem
            return HTTP2 if offer == (HTTP2,) else HTTP1
        return HTTP2 if isinstance(upstream, Http2Upstream) else HTTP1

    def later(self, offer: tuple[str, ...]) -> str:
        """Connects when the first request is sent. Returns the protocol to speak, the older one of `offer`: it has a
        reason phrase for a refusal, and every server supports it."""
        self._offer = (HTTP1 if HTTP1 in offer else HTTP2,)
        return self._offer[0]

    def plain(self, protocol: str) -> None:
        """Uses `protocol` without TLS, as the tenant does."""
        self._offer = (protocol,)

    def apart(self) -> Upstreams:
        """Separate connections, under the same rules, that do not end with the tenant's connection."""
        other = Upstreams(self._context, self._trust, self._hooks)
        other._offer = (HTTP2, HTTP1)
        return other

    async def send(self, request: Request) -> Response:
        """Sends `request` to its host. Raises Denied or UpstreamError."""
        place = (request.scheme, request.host, request.port)
        if place in self._failed:
            raise self._failed[place]
        upstream = await self._connected(place)
        request.uses.sent()
        used = upstream.used
        try:
            return await upstream.send(request)
        except UpstreamError as problem:
            # Upstream may have closed the idle connection just as we wrote. No response came, and these methods can be
            # repeated safely.
            repeatable = isinstance(request.stream, Whole) or request.stream is EMPTY
            if not (used and problem.nothing_came and repeatable and request.method in ("GET", "HEAD", "OPTIONS")):
                raise
        return await (await self._connected(place)).send(request)

    async def _connected(self, place: Endpoint) -> Upstream:
        """A connection that can take a request. There are several if the tenant multiplexes and upstream does not."""
        usable = self._usable(place)
        if usable is None:
            async with self._opening:
                usable = self._usable(place)
                if usable is None:
                    usable = await self._dial(place)
                    self._open.setdefault(place, []).append(usable)
                usable.reserve()
        else:
            usable.reserve()
        return usable

    def _usable(self, place: Endpoint) -> Upstream | None:
        known = self._open.setdefault(place, [])
        for one in [one for one in known if one.over]:
            one.close()
            known.remove(one)
        return next((one for one in known if one.usable), None)

    async def _dial(self, place: Endpoint) -> Upstream:
        scheme, host, port = place
        if self._closed:
            raise UpstreamError("the tenant closed the connection")
        try:
            stream = await Stream.of(await self._context.dial(Destination(host, port, "dns")))
        except OSError as problem:
            raise UpstreamError(problem.strerror or str(problem)) from None
        stream.when_ended = self._one_ended
        if scheme != "https":
            return self._http2(stream) if self._offer == (HTTP2,) else self._http1(stream)
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT):
                return await self._secured(stream, host)
        except BaseException as problem:
            stream.close()
            if isinstance(problem, TimeoutError):
                raise UpstreamError("the TLS handshake with the server took too long") from None
            raise

    async def _secured(self, stream: Stream, host: str) -> Upstream:
        context = await self._trust.context(self._offer)
        tls = TlsStream(stream, context, server_side=False, host=host)
        try:
            await tls.handshake()
        except ssl.SSLCertVerificationError as problem:
            raise UpstreamError(f"its certificate is not trusted: {problem.verify_message}") from None
        except (ssl.SSLError, OSError) as problem:
            raise UpstreamError(f"no TLS connection: {getattr(problem, 'reason', None) or problem}") from None
        await self._hooks.tls_verify(host, tls.certificates())
        return self._http2(tls) if tls.protocol == HTTP2 else self._http1(tls)

    def _http1(self, stream: ByteStream) -> Http1Upstream:
        upstream = Http1Upstream(stream)
        upstream.when_left = self._one_ended
        return upstream

    def _http2(self, stream: ByteStream) -> Http2Upstream:
        upstream = Http2Upstream(stream)
        upstream.when_left = self._one_ended
        return upstream

    def _one_ended(self) -> None:
        """Upstream closed a connection. When it was the last, an idle tenant connection is closed too: a program that
        waits for that (as node does) would wait forever."""
        if not self._closed and self.when_gone is not None:
            asyncio.get_running_loop().call_soon(self._tell_gone)

    def _tell_gone(self) -> None:
        open_ = [one for known in self._open.values() for one in known]
        if not self._closed and self.when_gone is not None and not any(one.usable for one in open_):
            self.when_gone()

    def close(self) -> None:
        """Closes all connections. No more are opened."""
        self._closed = True
        for known in self._open.values():
            for one in known:
                one.close()
        self._open.clear()
