"""The host's end of every connection a tenant makes: accept it, name it, judge it, then pass or intercept it.

`gate_thread.py` imports this when the first connection or DNS query arrives, and runs it in a thread with an event loop
of its own. Whatever a tenant sends, it can at most lose one of its own sandbox's connections.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from sandbox.errors import Denied
from sandbox.network.destination import Destination
from sandbox.network.gate import proxy
from sandbox.network.gate.acceptor import Acceptor
from sandbox.network.gate.dialer import Dialer
from sandbox.network.gate.dns_server import serve_datagrams, serve_stream
from sandbox.network.gate.judge import Judge
from sandbox.network.gate.publish import serve_published
from sandbox.network.gate.refusal import ClientStyle
from sandbox.network.gate.relay import Relay, reset
from sandbox.network.gate.reporting import GateReporter
from sandbox.network.gate.synthetic_addresses import PROXY, SyntheticAddresses
from sandbox.network.gate.tenant_connection import TenantConnection
from sandbox.network.threads import in_thread
from sandbox.policy.addresses import is_loopback_host, normalize_ip_for_policy, parse_address
from sandbox.policy.decision import Decision
from sandbox.policy.network import HOST_NAME

if TYPE_CHECKING:
    import socket

    from sandbox.config.model import Network
    from sandbox.network.gate.acceptor import Serve
    from sandbox.network.gate.setup import Setup
    from sandbox.network.signing.host import SignerHost
    from sandbox.policy.network import NetworkPolicy


class Gate:
    """One sandbox's gate. The interceptor sees it as a `destination.GateContext`."""

    asks_first = False

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.rules = Judge(setup)
        self.reporter = GateReporter(setup.emit, setup.record)
        self.judge = self.rules.judge
        self.report = self.reporter.report
        self.secret_used = self.reporter.secret_used
        self._loop = asyncio.get_running_loop()
        self._names = SyntheticAddresses()
        self._dialer = Dialer(setup.resolve)
        self._signer: SignerHost | None = None
        self._acceptor = Acceptor(self._overflow, self.reporter.broke)

    @property
    def network(self) -> Network:
        return self.rules.network

    @property
    def policy(self) -> NetworkPolicy:
        return self.rules.policy

    async def run(self, stop: socket.socket) -> None:
        """Serves until `stop` is readable, then ends every connection."""
        for name, sock in self.setup.listening.items():
            if name.startswith("udp"):
                sock.setblocking(False)
                self._loop.add_reader(sock, serve_datagrams, sock, self.lookup)
            else:
                self._acceptor.open(sock, self._server(name))
        for rule, listener in self.setup.published:
            self._acceptor.open(listener, partial(serve_published, rule=rule, gate=self))
        # An exception that escapes a task or callback is our own bug, triggered by a tenant's input. It is recorded,
        # never printed.
        self._loop.set_exception_handler(self._escaped)
        over = asyncio.Event()
        self._loop.add_reader(stop, over.set)
        await over.wait()
        await self._acceptor.close()
        await self.setup.finish()

    def _escaped(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.reporter.broke(context.get("exception") or RuntimeError(str(context.get("message"))))

    def expects_relay(self) -> None:
        """See `Acceptor`."""
        self._acceptor.expects_relay()

    def carries(self, relay: Relay) -> None:
        """See `Acceptor`."""
        self._acceptor.carries(relay)

    # -- accepting ----------------------------------------------------------------------------------------------

    def _server(self, name: str) -> Serve:
        if name.startswith("proxy"):
            return partial(proxy.serve, gate=self, token=self.setup.proxy_token)
        return self._lent if name.startswith("lo") else self._tenant

    async def _lent(self, client: socket.socket) -> None:
        """A port of the host, reached through the sandbox's own loopback (for a virtual machine, through its room's
        address)."""
        await self.connect(client, Destination(HOST_NAME, client.getsockname()[1], "dns"))

    async def _tenant(self, client: socket.socket) -> None:
        address, port = client.getsockname()[:2]
        destination = self.destination(normalize_ip_for_policy(address), port, "address")
        if destination.named_by == "dns":
            await self.connect(client, destination)
        elif port == 53:
            await serve_stream(client, self.lookup)
        elif address == PROXY:
            await proxy.serve(client, self)
        else:
            await self.connect(client, destination)

    def _overflow(self, client: socket.socket) -> None:
        address, port = client.getsockname()[:2]
        destination = self.destination(address, port, "address")
        reset(client)
        decision = Decision(False, "network", "the sandbox already has {most} connections", most=self._acceptor.most)
        self.report(destination, method="CONNECT", url=f"tcp://{destination}", decision=decision, status=503)

    # -- naming -------------------------------------------------------------------------------------------------

    def destination(self, host: str, port: int, named_by: str) -> Destination:
        """The destination that a host or address means. A synthetic address means its name."""
        name = self._names.name_of(host)
        if name is not None:
            return Destination(name, port, "dns")
        # The sandbox's loopback arrives here only on ports that are redirected to the host's.
        if named_by == "address" and is_loopback_host(host):
            return Destination(HOST_NAME, port, "dns")
        return Destination(host, port, named_by)

    def lookup(self, name: str, kind: str) -> tuple[bytes, bytes] | None:
        """The synthetic addresses of any name. Whether it may be reached is judged when a tenant connects: after a
        failed look-up, clients would only retry and never learn the reason."""
        return self._names.addresses(name) if parse_address(name) is None else None

    # -- connections --------------------------------------------------------------------------------------------

    async def connect(self, client: socket.socket, destination: Destination, style: ClientStyle | None = None) -> None:
        """Serves a tenant's connection to `destination` until it ends."""
        style = style or ClientStyle()
        style.as_srt = self.policy.as_srt
        self._names.hold(destination.host)
        try:
            await TenantConnection(self, client, destination, style).serve()
        finally:
            self._names.release(destination.host)

    def signer(self) -> SignerHost:
        """Answers for `signer.sandbox.internal`. Its calls to a node are judged as a tenant's own would be."""
        if self._signer is None:
            from sandbox.network.signing.host import SignerHost

            assert self.setup.signing is not None
            fetch = partial(self.setup.interception().fetch, context=self)
            self._signer = SignerHost(self.setup.signing, self.setup.sandbox_id, fetch)
        return self._signer

    async def admit(self, destination: Destination, method: str, path: str) -> None:
        """See GateContext.admit. The destination was judged already."""

    def refuse_placeholders(self, head: bytes, destination: Destination) -> None:
        """Raises Denied when a request head that the gate itself consumes contains a secret's placeholder."""
        if self.setup.had_secrets:
            self.setup.interception().refuse_placeholders(head, destination)

    async def deny(
        self, client: socket.socket, destination: Destination, decision: Decision, style: ClientStyle
    ) -> None:
        """Refuses the connection: writes it to the record, emits an event, and tells the tenant."""
        self.report(destination, method="CONNECT", url=f"tcp://{destination}", decision=decision, status=403)
        style.as_srt = self.policy.as_srt
        await style.deny(client, destination, decision, self.setup.authority)

    async def dial(self, destination: Destination, decision: Decision | None = None) -> socket.socket:
        """See GateContext.dial."""
        decision = decision or self.judge(destination)
        if not decision:
            raise Denied(decision.rule, decision.reason)
        return await self._dialer.dial(destination, self.policy, self.network)

    async def dial_inside(self, port: int) -> socket.socket:
        """A connection to a tenant's listening port, made by the guest."""
        return await in_thread(self.setup.dial, "127.0.0.1", port)


def run(setup: Setup, stop: socket.socket) -> None:
    """Runs a gate in this thread until `stop` is readable."""

    async def main() -> None:
        setup.loop = asyncio.get_running_loop()
        await Gate(setup).run(stop)

    with asyncio.Runner() as runner:
        runner.run(main())
