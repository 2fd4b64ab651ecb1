"""The host's end of every connection a tenant makes: name it, judge it, record it, then pass or intercept it.

`gate_thread.py` imports this when the first connection or DNS query arrives, and runs it in a thread with an event loop
of its own. Whatever a tenant sends, it can at most lose one of its own sandbox's connections.
"""

from __future__ import annotations

import asyncio
import socket
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from sandbox.errors import Denied, Message
from sandbox.network.destination import Destination
from sandbox.network.gate import asking, proxy
from sandbox.network.gate.acceptor import IDLE, Acceptor
from sandbox.network.gate.dialer import Dialer
from sandbox.network.gate.dns_server import serve_datagrams, serve_stream
from sandbox.network.gate.first_bytes import Detected, first_bytes
from sandbox.network.gate.publish import serve_published
from sandbox.network.gate.refusal import ClientStyle
from sandbox.network.gate.relay import Relay, either_readable, reset
from sandbox.network.gate.reporting import Reporter
from sandbox.network.gate.server_name import judge_server_name
from sandbox.network.gate.ssh import both_speak_ssh
from sandbox.network.gate.synthetic_addresses import PROXY, SyntheticAddresses, is_synthetic
from sandbox.network.threads import in_thread
from sandbox.network.tls.client_hello import HANDSHAKE
from sandbox.policy.addresses import is_loopback_host, normalize_ip_for_policy, parse_address
from sandbox.policy.decision import Decision
from sandbox.policy.hosts import SSH
from sandbox.policy.network import HOST_NAME, NetworkPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Protocol

    from sandbox.asks.table import Asks
    from sandbox.config.model import Network
    from sandbox.network.destination import GateContext, Interception
    from sandbox.network.gate.acceptor import Serve
    from sandbox.network.gate.publish import Published
    from sandbox.network.tls.ca import Authority

    class Setup(Protocol):
        """What the gate is given: `gate_thread.GateThread`."""

        asks: Callable[[], Asks]
        dial: Callable[[str, int], socket.socket]
        emit: Callable[[dict[str, object]], None]
        had_secrets: bool
        listening: dict[str, socket.socket]
        network: Network
        pid: int | None
        proxy_token: str | None
        published: list[tuple[Published, socket.socket]]
        record: Callable[..., None]
        resolve: Callable[[str, int], Sequence[str]] | None

        @property
        def policy(self) -> NetworkPolicy: ...

        def authority(self) -> Authority: ...

        def interception(self) -> Interception: ...

        def wants_interception(self, host: str) -> bool: ...

        async def finish(self) -> None: ...


_FIRST_BYTES = 30.0  # seconds that a slow sender has for a ClientHello or a request line


class Gate:
    """One sandbox's gate. The interceptor sees it as a `destination.GateContext`."""

    asks_first = False

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._loop = asyncio.get_running_loop()
        self._names = SyntheticAddresses()
        self._dialer = Dialer(setup.resolve)
        self._reporter = Reporter(setup.emit, setup.record)
        self._acceptor = Acceptor(self._overflow, self._reporter.broke)
        self.report = self._reporter.report

    @property
    def network(self) -> Network:
        return self._setup.network

    @property
    def policy(self) -> NetworkPolicy:
        return self._setup.policy

    async def run(self, stop: socket.socket) -> None:
        """Serves until `stop` is readable, then ends every connection."""
        for name, sock in self._setup.listening.items():
            if name.startswith("udp"):
                sock.setblocking(False)
                self._loop.add_reader(sock, serve_datagrams, sock, self.lookup)
            else:
                self._acceptor.open(sock, self._server(name))
        for rule, listener in self._setup.published:
            self._acceptor.open(listener, partial(serve_published, rule=rule, gate=self))
        # An exception that escapes a task or callback is a bug of ours that a tenant's input triggered. It is recorded,
        # never printed.
        self._loop.set_exception_handler(self._escaped)
        over = asyncio.Event()
        self._loop.add_reader(stop, over.set)
        await over.wait()
        await self._acceptor.close()
        await self._setup.finish()

    def _escaped(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._reporter.broke(context.get("exception") or RuntimeError(str(context.get("message"))))

    def expects_relay(self) -> None:
        """See `Acceptor`."""
        self._acceptor.expects_relay()

    def carries(self, relay: Relay) -> None:
        """See `Acceptor`."""
        self._acceptor.carries(relay)

    # -- accepting ----------------------------------------------------------------------------------------------

    def _server(self, name: str) -> Serve:
        if name.startswith("proxy"):
            return partial(proxy.serve, gate=self, token=self._setup.proxy_token)
        return self._tenant

    def _overflow(self, client: socket.socket) -> None:
        address, port = client.getsockname()[:2]
        destination = self.destination(address, port, "address")
        reset(client)
        decision = Decision(False, "network", "the sandbox already has {most} connections", most=self._acceptor.most)
        self.report(destination, method="CONNECT", url=f"tcp://{destination}", decision=decision, status=503)

    # -- naming -------------------------------------------------------------------------------------------------

    def destination(self, host: str, port: int, named_by: str) -> Destination:
        """What a host or address stands for. A synthetic address stands for its name."""
        name = self._names.name_of(host)
        if name is not None:
            return Destination(name, port, "dns")
        # The sandbox's loopback arrives here only on ports that are redirected to the host's.
        if named_by == "address" and is_loopback_host(host):
            return Destination(HOST_NAME, port, "dns")
        return Destination(host, port, named_by)

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

    def judge(self, destination: Destination) -> Decision:
        """Whether the destination may be connected to, by the policy and by the policy script."""
        host, port = destination.host, destination.port
        if destination.named_by != "dns" and is_synthetic(host):
            return Decision(
                False,
                "network.allowed_hosts",
                "{host} no longer belongs to a name; resolve the name again",
                host=host,
            )
        decision = self.policy.connect(host, port)
        if not decision and destination.named_by != "hook" and self._granted(destination):
            decision = asking.allowed(destination)
        scripted = self._scripted(host) if host != HOST_NAME else None
        if scripted is None or decision.rule.startswith("network.denied_hosts"):
            return decision
        if not scripted or decision:
            return decision if scripted else scripted
        # The script takes the place of a list that was not written. Where there is a list, both must agree.
        listed = self.network.allowed_hosts or self.network.preset != "closed"
        return decision if listed or parse_address(host) is not None else scripted

    def _granted(self, destination: Destination) -> bool:
        """Whether the owner was asked about it and allowed it until the sandbox ends."""
        if not self.network.ask or not self.policy.askable(destination.host, destination.port):
            return False
        return asking.granted(self._setup.asks(), destination)

    def _asks_about(self, destination: Destination, decision: Decision) -> bool:
        """Whether the owner is asked: only about what is refused because it is not listed."""
        return (
            not decision
            and self.network.ask
            and decision.rule == "network.allowed_hosts"
            and self.policy.askable(destination.host, destination.port)
        )

    async def _ask(
        self, client: socket.socket, destination: Destination, decision: Decision, style: ClientStyle
    ) -> Decision:
        """Waits for the owner's answer about a connection."""
        method, path = await style.first_request(client)
        asks, seconds = self._setup.asks(), self.network.ask_timeout
        return await asking.asked(asks, self._setup.pid, client, destination, decision, seconds, method, path)

    async def admit(self, destination: Destination, method: str, path: str) -> None:
        """See GateContext.admit. The destination was judged already."""

    def _scripted(self, host: str) -> Decision | None:
        if self.network.policy_script is None:
            return None
        return self._setup.interception().host_allowed(host)

    def _is_intercepted(self, destination: Destination) -> bool:
        host = destination.host
        if host == HOST_NAME or self.policy.passes_raw(host, destination.port):
            return False
        return self.policy.intercepts(host) or self._setup.wants_interception(host)

    def refuse_placeholders(self, head: bytes, destination: Destination) -> None:
        """Raises Denied when a request head that the gate itself consumes contains a secret's placeholder."""
        if self._setup.had_secrets:
            self._setup.interception().refuse_placeholders(head, destination)

    # -- connections --------------------------------------------------------------------------------------------

    async def connect(self, client: socket.socket, destination: Destination, style: ClientStyle | None = None) -> None:
        """Serves a tenant's connection to `destination` until it ends."""
        style = style or ClientStyle()
        style.as_srt = self.policy.as_srt
        decision = self.judge(destination)
        self._names.hold(destination.host)
        try:
            intercepted = self._is_intercepted(destination)
            if self._asks_about(destination, decision):
                if intercepted and destination.port != SSH:
                    await style.welcome(client, None)
                    return await self._intercept(client, destination, self._asking(client, destination))
                decision = await self._ask(client, destination, decision, style)
            if not decision:
                await self.deny(client, destination, decision, style)
            elif not intercepted:
                await self._pass(client, destination, decision, style)
            elif destination.port == SSH:
                await style.welcome(client, None)
                await self._ssh(client, destination, decision)
            else:
                await style.welcome(client, None)
                await self._intercept(client, destination)
        finally:
            self._names.release(destination.host)

    def _asking(self, client: socket.socket, destination: Destination) -> asking.AskedContext:
        return asking.AskedContext(self, self._setup.asks(), self._setup.pid, client, destination)

    async def deny(
        self, client: socket.socket, destination: Destination, decision: Decision, style: ClientStyle
    ) -> None:
        """Refuses the connection: writes it to the record, emits an event, and tells the tenant."""
        self.report(destination, method="CONNECT", url=f"tcp://{destination}", decision=decision, status=403)
        style.as_srt = self.policy.as_srt
        await style.deny(client, destination, decision, self._setup.authority)

    async def _intercept(
        self, client: socket.socket, destination: Destination, context: GateContext | None = None
    ) -> None:
        try:
            async with asyncio.timeout(_FIRST_BYTES):
                peeked, found = await first_bytes(client)
        except TimeoutError:
            peeked, found = b"", Detected("other")
        if found.hello is not None:
            mismatch = judge_server_name(found.hello, destination, self.policy, intercepted=True)
            if mismatch is not None:
                return await self.deny(client, destination, mismatch, ClientStyle())
        if found.kind in ("tls", "http"):
            interception = self._setup.interception()
            try:
                await getattr(interception, found.kind)(client, peeked, destination, context or self)
            except Denied as denied:
                refused = Decision(False, denied.rule, denied.reason)
                self.report(destination, method="CONNECT", url=f"tcp://{destination}", decision=refused, status=403)
        else:
            # A client that sends nothing is refused too: it must not be passed on without interception.
            reason = Message(
                "{destination} is intercepted, but this is neither TLS nor HTTP", destination=str(destination)
            )
            if not self.policy.intercepts_by_rule(destination.host):
                reason = Message(
                    "{destination} is intercepted, but this is neither TLS nor HTTP; to pass another protocol, write "
                    "'tcp:{destination}' in network.allowed_hosts",
                    destination=str(destination),
                )
            await self.deny(client, destination, Decision(False, "network.intercept", reason), ClientStyle())

    async def _ssh(self, client: socket.socket, destination: Destination, decision: Decision) -> None:
        """Passes the connection when both ends speak ssh, and intercepts everything else on ssh's port."""
        try:
            upstream = await self.dial(destination, decision)
        except (Denied, OSError):
            return await self._intercept(client, destination)  # it tells an HTTP client why
        with upstream:
            try:
                async with asyncio.timeout(_FIRST_BYTES):
                    agreed = await both_speak_ssh(client, upstream)
            except TimeoutError:
                agreed = False
            if agreed:
                return await self._carry(client, upstream, destination, decision)
        await self._intercept(client, destination)

    async def _pass(
        self, client: socket.socket, destination: Destination, decision: Decision, style: ClientStyle
    ) -> None:
        try:
            upstream = await self.dial(destination, decision)
        except Denied as denied:
            refused = Decision(False, denied.rule, denied.reason)
            return await self.deny(client, destination, refused, style)
        except OSError as problem:
            url = f"tcp://{destination}"
            self.report(destination, method="CONNECT", url=url, decision=decision, status=502, error=str(problem))
            return await style.fail(client, destination, str(problem), self._setup.authority)
        with upstream:
            await style.welcome(client, upstream)
            mismatch = await self._wrong_name(client, upstream, destination)
            if mismatch is not None:
                return await self.deny(client, destination, mismatch, ClientStyle())
            await self._carry(client, upstream, destination, decision)

    async def _carry(
        self, client: socket.socket, upstream: socket.socket, destination: Destination, decision: Decision
    ) -> None:
        """Moves bytes, without looking at them, until both ends are done."""
        started = time.monotonic()
        self._reporter.note(decision, destination)
        relay = Relay(client, upstream)
        self._acceptor.carries(relay)
        try:
            await relay.run()
        finally:
            moved = relay.sent.total, relay.received.total
            self._reporter.tell(decision, "CONNECT", f"tcp://{destination}", 200, *moved, time.monotonic() - started)

    async def _wrong_name(
        self, client: socket.socket, upstream: socket.socket, destination: Destination
    ) -> Decision | None:
        """The refusal of a ClientHello for another host. A protocol other than TLS, or one where the server speaks
        first, has no name to check."""
        async with asyncio.timeout(IDLE):
            await either_readable(client, upstream)
        try:
            data = client.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return None
        if data != HANDSHAKE or destination.host == HOST_NAME:
            return None
        try:
            async with asyncio.timeout(_FIRST_BYTES):
                _, found = await first_bytes(client)
        except TimeoutError:
            return Decision(
                False,
                "tls",
                "no complete ClientHello for {destination} arrived in {seconds:.0f} s",
                destination=destination,
                seconds=_FIRST_BYTES,
            )
        if found.hello is None:
            return Decision(
                False,
                "tls",
                "the connection to {destination} began as TLS but sent no ClientHello",
                destination=destination,
            )
        return judge_server_name(found.hello, destination, self.policy, intercepted=False)

    async def dial(self, destination: Destination, decision: Decision | None = None) -> socket.socket:
        """See GateContext.dial."""
        decision = decision or self.judge(destination)
        if not decision:
            raise Denied(decision.rule, decision.reason)
        return await self._dialer.dial(destination, self.policy, self.network.upstream_proxy)

    async def dial_inside(self, port: int) -> socket.socket:
        """A connection to a tenant's listening port, made by the guest."""
        return await in_thread(self._setup.dial, "127.0.0.1", port)

    # -- DNS ----------------------------------------------------------------------------------------------------

    def lookup(self, name: str, kind: str) -> tuple[bytes, bytes] | None:
        """The synthetic addresses of any name. Whether it may be reached is judged when somebody connects: after a
        failed look-up, clients would only retry, and never learn the reason."""
        return self._names.addresses(name) if parse_address(name) is None else None


def run(setup: Setup, stop: socket.socket) -> None:
    """Runs a gate in this thread until `stop` is readable."""

    async def main() -> None:
        await Gate(setup).run(stop)

    with asyncio.Runner() as runner:
        runner.run(main())
