"""Looking into connections: TLS ends here, HTTP is read, judged, changed and spoken to the other side.

One `Interception` per sandbox, made when the first connection needs it; its authority and its secrets live in
memory and go with it. See `exchange.py` for what happens to a request, `destination.py` for what the gate
expects.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

from sandbox.errors import Denied
from sandbox.network.ca import Authority
from sandbox.network.exchange import Exchange
from sandbox.network.hooks import HookRunner
from sandbox.network.http1_tenant import Http1Tenant
from sandbox.network.http2_tenant import Http2Tenant
from sandbox.network.secrets import Secrets
from sandbox.network.stream import Stream
from sandbox.network.tls import TlsStream, read_hello
from sandbox.network.upstream import HTTP1, HTTP2, Trust, Upstreams
from sandbox.policy.hosts import InvalidHost, canonical_host

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

    from sandbox.config.model import Network
    from sandbox.network.destination import Destination, GateContext
    from sandbox.network.script import Script
    from sandbox.network.stream import ByteStream
    from sandbox.policy.decision import Decision

HANDSHAKE_TIMEOUT = 30.0
UNTRUSTED = "; perhaps it does not trust the sandbox's authority"
PREFACE = b"PRI * HTTP/2.0\r\n"


class Interception:
    """Everything that looking into one sandbox's connections needs. Raises ConfigError when a secret has no
    value or the policy script cannot be loaded."""

    def __init__(
        self,
        network: Network,
        placeholders: Mapping[str, str],
        hooks: object | None = None,
        *,
        log: Callable[[str], None] | None = None,
    ) -> None:
        self._hooks_object = hooks
        self._log = log or (lambda line: None)
        self._authority: Authority | None = None
        self._secrets = Secrets(network.secrets, placeholders)
        self._network = network
        self._hooks = HookRunner(hooks, _script(network, self._log))
        self._trust = Trust(network.ca_certificates)
        self._trust.warm()

    def update(self, network: Network) -> None:
        """New requests see `network`. Changes nothing when it raises ConfigError."""
        old = self._network
        scripted = (network.policy_script, network.policy_secrets) != (old.policy_script, old.policy_secrets)
        hooks = HookRunner(self._hooks_object, _script(network, self._log)) if scripted else self._hooks
        self._secrets.update(network.secrets)
        if hooks is not self._hooks:
            self._hooks.close()
            self._hooks = hooks
        if network.ca_certificates != old.ca_certificates:
            self._trust = Trust(network.ca_certificates)
        self._network = network

    def wants(self, host: str) -> bool:
        """Whether connections to `host` must be looked into. A secret anywhere is a reason everywhere: a
        placeholder on its way to the wrong host can only be stopped where it can be seen."""
        return bool(self._secrets) or bool(self._hooks)

    def host_allowed(self, host: str) -> Decision | None:
        """What the policy script's `is_host_allowed` says; None when there is no such function."""
        return self._hooks.host_allowed(host)

    def refuse_placeholders(self, head: bytes, destination: Destination) -> None:
        """Raises Denied when a request head that the gate itself reads (CONNECT) holds a placeholder."""
        self._secrets.refuse_in(head, destination.host, destination.port)

    def ca_certificate(self) -> bytes:
        """The sandbox's own authority, PEM."""
        return self._own_authority().pem

    async def tls(self, client: socket.socket, peeked: bytes, destination: Destination, context: GateContext) -> None:
        """Ends TLS here. Upstream is asked first, so that the tenant is offered what upstream speaks."""
        stream = await Stream.of(client)
        upstreams = Upstreams(context, self._trust, self._hooks)
        try:
            hello = read_hello(peeked)
            _refuse_other_name(hello.server_name, destination)
            offer = tuple(one for one in hello.protocols if one in (HTTP1, HTTP2)) or (HTTP1,)
            protocol = await upstreams.agree(destination, offer)
            tls = TlsStream(stream, self._own_authority().context(destination.host, protocol), server_side=True)
            async with asyncio.timeout(HANDSHAKE_TIMEOUT):
                await tls.handshake()
            await self._serve(tls, protocol, "https", destination, context, upstreams)
        except ssl.SSLError as problem:
            raise Denied("tls", f"the TLS handshake failed ({problem.reason or problem})" + UNTRUSTED) from None
        finally:
            upstreams.close()
            stream.close()

    async def http(self, client: socket.socket, peeked: bytes, destination: Destination, context: GateContext) -> None:
        """The same for plain HTTP, on any port; HTTP/2 when the tenant begins with its preface."""
        stream = await Stream.of(client)
        upstreams = Upstreams(context, self._trust, self._hooks)
        try:
            protocol = HTTP2 if peeked.startswith(PREFACE) else HTTP1
            upstreams.plain(protocol)
            await self._serve(stream, protocol, "http", destination, context, upstreams)
        finally:
            upstreams.close()
            stream.close()

    async def _serve(
        self,
        stream: ByteStream,
        protocol: str,
        scheme: str,
        destination: Destination,
        context: GateContext,
        upstreams: Upstreams,
    ) -> None:
        handle = Exchange(destination, context, self._secrets, self._hooks, upstreams)
        speak = Http2Tenant if protocol == HTTP2 else Http1Tenant
        try:
            await speak(stream, scheme, destination.host, destination.port, handle).serve()
        except (ConnectionError, TimeoutError):
            # The tenant left, or took too long; what it asked for has been reported.
            if scheme == "https" and not handle.asked:
                raise Denied("tls", "the tenant ended the connection after the TLS handshake" + UNTRUSTED) from None
        finally:
            stream.close()

    def _own_authority(self) -> Authority:
        if self._authority is None:
            self._authority = Authority()
        return self._authority

    def close(self) -> None:
        """Ends the workers."""
        self._hooks.close()
        self._trust.close()


def _script(network: Network, log: Callable[[str], None]) -> Script | None:
    if network.policy_script is None:
        return None
    from sandbox.network.script import Script

    return Script(network.policy_script, network.policy_secrets, log)


def _refuse_other_name(server_name: str | None, destination: Destination) -> None:
    if server_name is None:
        return
    try:
        same = canonical_host(server_name) == destination.host
    except InvalidHost:
        same = False
    if not same:
        raise Denied(
            "server-name",
            f"the TLS handshake names {server_name[:260]!r}, the connection is for {destination.host!r}",
        )
