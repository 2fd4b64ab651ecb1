"""One connection of a tenant, from the decision to its end: asked about, refused, passed on or intercepted."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import TYPE_CHECKING, Protocol

from sandbox.errors import Denied, Message
from sandbox.network.gate import ask_owner
from sandbox.network.gate.acceptor import IDLE
from sandbox.network.gate.first_bytes import Detected, first_bytes, peek
from sandbox.network.gate.refusal import ClientStyle
from sandbox.network.gate.relay import Relay, either_readable
from sandbox.network.gate.server_name import judge_server_name
from sandbox.network.gate.ssh import both_speak_ssh
from sandbox.network.tls.client_hello import HANDSHAKE, OTHER_RECORDS, begins_record
from sandbox.policy.decision import Decision
from sandbox.policy.hosts import SSH
from sandbox.policy.network import HOST_NAME, SIGNER_NAME

if TYPE_CHECKING:
    from sandbox.network.destination import Destination, GateContext
    from sandbox.network.gate.judge import Judge
    from sandbox.network.gate.reporting import GateReporter
    from sandbox.network.gate.setup import Setup
    from sandbox.network.signing.host import SignerHost

    class ConnectionGate(GateContext, Protocol):
        """What a connection needs of the gate."""

        setup: Setup
        rules: Judge
        reporter: GateReporter

        async def dial(self, destination: Destination, decision: Decision | None = None) -> socket.socket: ...

        async def deny(
            self, client: socket.socket, destination: Destination, decision: Decision, style: ClientStyle
        ) -> None: ...

        def carries(self, relay: Relay) -> None: ...

        def signer(self) -> SignerHost: ...


_FIRST_BYTES = 30.0  # seconds that a slow sender has for a ClientHello or a request line


class TenantConnection:
    """A tenant's connection to `destination`. `style`: how the client learns the outcome."""

    def __init__(
        self, gate: ConnectionGate, client: socket.socket, destination: Destination, style: ClientStyle
    ) -> None:
        self._gate = gate
        self._client = client
        self._destination = destination
        self._style = style
        self._url = f"tcp://{destination}"

    async def serve(self) -> None:
        """Serves it until it ends."""
        gate, style = self._gate, self._style
        if self._destination.host == SIGNER_NAME and gate.setup.signing is not None:
            return await self._signer()
        decision = gate.judge(self._destination)
        intercepted = gate.rules.intercepts(self._destination)
        if gate.rules.asks_about(self._destination, decision):
            if intercepted and self._destination.port != SSH:
                await style.welcome(self._client, None)
                return await self._intercept(asks_first=True)
            decision = await self._ask(decision)
        if not decision:
            await self._deny(decision, style)
        elif not intercepted:
            await self._pass(decision)
        elif self._destination.port == SSH:
            await style.welcome(self._client, None)
            await self._ssh(decision)
        else:
            await style.welcome(self._client, None)
            await self._intercept()

    async def _signer(self) -> None:
        """Answers as the signer, a host that only the gate knows."""
        from sandbox.network.signing.connection import serve

        await self._style.welcome(self._client, None)
        try:
            async with asyncio.timeout(_FIRST_BYTES):
                _, found = await first_bytes(self._client)
        except TimeoutError:
            return
        decision = Decision(True, "signing.enabled", "allowed")
        if found.kind not in ("tls", "http"):
            decision = Decision(False, "signing.enabled", "the signer speaks HTTP")
            return await self._deny(decision)
        self._gate.report(self._destination, method="CONNECT", url=self._url, decision=decision, status=200)
        await serve(self._client, found.kind, self._destination, self._gate.setup.authority, self._gate.signer())

    async def _ask(self, refusal: Decision) -> Decision:
        """Waits for the owner's answer."""
        method, path = await self._style.first_request(self._client)
        setup, seconds = self._gate.setup, self._gate.network.ask_timeout
        return await ask_owner.asked(
            setup.asks(), setup.pid, self._client, self._destination, refusal, seconds, method, path
        )

    async def _deny(self, decision: Decision, style: ClientStyle | None = None) -> None:
        """Refuses the connection. Without a `style`, the client has been welcomed and believes that it talks to the
        destination."""
        await self._gate.deny(self._client, self._destination, decision, style or ClientStyle())

    async def _intercept(self, *, asks_first: bool = False) -> None:
        """Hands it to the interceptor when it is TLS or HTTP, and refuses it otherwise."""
        try:
            async with asyncio.timeout(_FIRST_BYTES):
                peeked, found = await first_bytes(self._client)
        except TimeoutError:
            peeked, found = b"", Detected("other")
        if found.hello is not None:
            mismatch = judge_server_name(found.hello, self._destination, self._gate.policy, intercepted=True)
            if mismatch is not None:
                return await self._deny(mismatch)
        if found.kind not in ("tls", "http"):
            return await self._deny(self._unreadable())
        interception = self._gate.setup.interception()
        serve = interception.tls if found.kind == "tls" else interception.http
        try:
            await serve(self._client, peeked, self._destination, self._asking() if asks_first else self._gate)
        except Denied as denied:
            refused = Decision(False, denied.rule, denied.reason)
            self._gate.report(self._destination, method="CONNECT", url=self._url, decision=refused, status=403)

    def _asking(self) -> ask_owner.AskedContext:
        setup = self._gate.setup
        return ask_owner.AskedContext(self._gate, setup.asks(), setup.pid, self._client, self._destination)

    def _unreadable(self) -> Decision:
        """The refusal of a protocol that cannot be intercepted. A client that sends nothing is refused too: its
        connection must not be passed on without interception."""
        shown = str(self._destination)
        reason = Message("{destination} is intercepted, but this is neither TLS nor HTTP", destination=shown)
        if not self._gate.policy.intercepts_by_rule(self._destination.host):
            reason = Message(
                "{destination} is intercepted, but this is neither TLS nor HTTP; to pass another protocol, write "
                "'tcp:{destination}' in network.allowed_hosts",
                destination=shown,
            )
        return Decision(False, "network.intercept", reason)

    async def _ssh(self, decision: Decision) -> None:
        """Passes the connection when both ends speak ssh, and intercepts everything else on ssh's port."""
        try:
            upstream = await self._gate.dial(self._destination, decision)
        except (Denied, OSError):
            return await self._intercept()  # which tells an HTTP client why
        with upstream:
            try:
                async with asyncio.timeout(_FIRST_BYTES):
                    agreed = await both_speak_ssh(self._client, upstream)
            except TimeoutError:
                agreed = False
            if agreed:
                return await self._carry(upstream, decision)
        await self._intercept()

    async def _pass(self, decision: Decision) -> None:
        try:
            upstream = await self._gate.dial(self._destination, decision)
        except Denied as denied:
            return await self._deny(Decision(False, denied.rule, denied.reason), self._style)
        except OSError as problem:
            error = str(problem)
            self._gate.report(
                self._destination, method="CONNECT", url=self._url, decision=decision, status=502, error=error
            )
            return await self._style.fail(self._client, self._destination, error, self._gate.setup.authority)
        with upstream:
            await self._style.welcome(self._client, upstream)
            mismatch = await self._wrong_name(upstream)
            if mismatch is not None:
                return await self._deny(mismatch)
            await self._carry(upstream, decision)

    async def _carry(self, upstream: socket.socket, decision: Decision) -> None:
        """Moves bytes, without looking at them, until both ends are done."""
        started = time.monotonic()
        reporter = self._gate.reporter
        reporter.note(decision, self._destination)
        relay = Relay(self._client, upstream)
        self._gate.carries(relay)
        try:
            await relay.run()
        finally:
            reporter.tell(
                decision,
                "CONNECT",
                self._url,
                status=200,
                sent=relay.sent.total,
                received=relay.received.total,
                seconds=time.monotonic() - started,
            )

    async def _wrong_name(self, upstream: socket.socket) -> Decision | None:
        """The refusal of a ClientHello for another host. A protocol other than TLS, or one where the server speaks
        first, has no name to check."""
        async with asyncio.timeout(IDLE):
            await either_readable(self._client, upstream)
        try:
            data = self._client.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return None
        if data not in HANDSHAKE + OTHER_RECORDS or self._destination.host == HOST_NAME:
            return None
        try:
            async with asyncio.timeout(_FIRST_BYTES):
                if not begins_record(await peek(self._client, 2, 2)):
                    return None
                _, found = await first_bytes(self._client)
        except TimeoutError:
            return Decision(
                False,
                "tls",
                "no complete ClientHello for {destination} arrived in {seconds:.0f} s",
                destination=self._destination,
                seconds=_FIRST_BYTES,
            )
        if found.hello is None:
            return Decision(
                False,
                "tls",
                "the connection to {destination} began as TLS but sent no ClientHello",
                destination=self._destination,
            )
        return judge_server_name(found.hello, self._destination, self._gate.policy, intercepted=False)
