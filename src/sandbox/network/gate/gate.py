"""The host's end of every connection a tenant makes: name it, judge it, record it, then pass or intercept.

Imported by `gate_thread.py` when the first connection or query arrives; it runs in that thread, on its own event loop.
Nothing a tenant sends can do more here than cost its own sandbox one of its connections.
"""

from __future__ import annotations

import asyncio
import socket
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from sandbox.errors import Denied, Message
from sandbox.network.gate import proxy
from sandbox.network.gate.acceptor import IDLE, Acceptor
from sandbox.network.gate.destination import Destination
from sandbox.network.gate.dial import Dialer
from sandbox.network.gate.dns_server import serve_datagrams, serve_stream
from sandbox.network.gate.names import PROXY, Names, is_synthetic
from sandbox.network.gate.publish import serve_published
from sandbox.network.gate.refusal import ClientStyle
from sandbox.network.gate.relay import Relay, either_readable, reset
from sandbox.network.gate.reporting import Reporter
from sandbox.network.gate.sniff import TLS, Sniffed, first_bytes
from sandbox.network.gate.ssh import both_speak_ssh
from sandbox.network.gate.threads import in_thread
from sandbox.policy.addresses import is_loopback_host, normalize_ip_for_policy, parse_address
from sandbox.policy.decision import Decision
from sandbox.policy.hosts import SSH, InvalidHost, canonical_host
from sandbox.policy.network import HOST_NAME, NetworkPolicy

if TYPE_CHECKING:
    from sandbox.config.model import Network
    from sandbox.network.gate.acceptor import Serve
    from sandbox.network.gate_thread import GateThread

_FIRST_BYTES = 30.0  # a slow sender has so long for a ClientHello or a request line


class Gate:
    """One sandbox's gate; what it implements towards the interceptor is `destination.GateContext`."""

    def __init__(self, watch: GateThread) -> None:
        self._watch = watch
        self._loop = asyncio.get_running_loop()
        self._names = Names()
        self._dialer = Dialer(watch.resolve)
        self._reporter = Reporter(watch.emit, watch.record)
        self._door = Acceptor(self._overflow, self._reporter.broke)
        self.report = self._reporter.report

    @property
    def network(self) -> Network:
        return self._watch.network

    @property
    def policy(self) -> NetworkPolicy:
        return self._watch.policy

    async def run(self, stop: socket.socket) -> None:
        """Serves until `stop` is readable, then ends every connection."""
        for name, sock in self._watch.listening.items():
            if name.startswith("udp"):
                sock.setblocking(False)
                self._loop.add_reader(sock, serve_datagrams, sock, self.lookup)
            else:
                self._door.open(sock, self._server(name))
        for rule, listener in self._watch.published:
            self._door.open(listener, partial(serve_published, rule=rule, gate=self))
        # What escapes a task or callback is a mistake of ours that a tenant's input found: noted, never printed.
        self._loop.set_exception_handler(self._escaped)
        over = asyncio.Event()
        self._loop.add_reader(stop, over.set)
        await over.wait()
        await self._door.close()

    def _escaped(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._reporter.broke(context.get("exception") or RuntimeError(str(context.get("message"))))

    def expects_relay(self) -> None:
        """See `Acceptor`."""
        self._door.expects_relay()

    def carries(self, relay: Relay) -> None:
        """See `Acceptor`."""
        self._door.carries(relay)

    # -- accepting ----------------------------------------------------------------------------------------------

    def _server(self, name: str) -> Serve:
        if name.startswith("proxy"):
            return partial(proxy.serve, gate=self, token=self._watch.proxy_token)
        return self._tenant

    def _overflow(self, client: socket.socket) -> None:
        address, port = client.getsockname()[:2]
        destination = self.destination(address, port, "address")
        reset(client)
        decision = Decision(False, "network", "the sandbox already has {most} connections", most=self._door.most)
        self.report(destination, method="CONNECT", url=f"tcp://{destination}", decision=decision, status=503)

    # -- naming -------------------------------------------------------------------------------------------------

    def destination(self, host: str, port: int, named_by: str) -> Destination:
        """Whom a host or address means: a synthetic address means its name."""
        name = self._names.name_of(host)
        if name is not None:
            return Destination(name, port, "dns")
        # The inside's loopback comes here only on ports that were lent to the host's.
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
        """Whether the destination may be connected to: the policy, and the policy script's opinion."""
        host, port = destination.host, destination.port
        if destination.named_by != "dns" and is_synthetic(host):
            return Decision(
                False,
                "network.allowed_hosts",
                "{host} is no longer a name's address; resolve the name again",
                host=host,
            )
        decision = self.policy.connect(host, port)
        scripted = self._scripted(host) if host != HOST_NAME else None
        if scripted is None or decision.rule.startswith("network.denied_hosts"):
            return decision
        if not scripted or decision:
            return decision if scripted else scripted
        # The script stands for a list that was not written; where there is one, both must agree.
        return decision if self.network.allowed_hosts or parse_address(host) is not None else scripted

    def _scripted(self, host: str) -> Decision | None:
        if self.network.policy_script is None:
            return None
        return self._watch.interception().host_allowed(host)

    def _looked_into(self, destination: Destination) -> bool:
        host = destination.host
        if host == HOST_NAME or self.policy.passes_raw(host, destination.port):
            return False
        return self.policy.intercepts(host) or self._watch.wants_interception(host)

    def refuse_placeholders(self, head: bytes, destination: Destination) -> None:
        """Raises Denied when a head that was read here, and goes no further, holds a secret's placeholder."""
        if self._watch.had_secrets:
            self._watch.interception().refuse_placeholders(head, destination)

    # -- connections --------------------------------------------------------------------------------------------

    async def connect(self, client: socket.socket, destination: Destination, manner: ClientStyle | None = None) -> None:
        """Serves a tenant that wants `destination`, to the end."""
        manner = manner or ClientStyle()
        decision = self.judge(destination)
        self._names.hold(destination.host)
        try:
            if not decision:
                await self.deny(client, destination, decision, manner)
            elif not self._looked_into(destination):
                await self._pass(client, destination, decision, manner)
            elif destination.port == SSH:
                await manner.welcome(client, None)
                await self._ssh(client, destination, decision)
            else:
                await manner.welcome(client, None)
                await self._intercept(client, destination)
        finally:
            self._names.release(destination.host)

    async def deny(
        self, client: socket.socket, destination: Destination, decision: Decision, manner: ClientStyle
    ) -> None:
        """Tells everybody who should know: the record, the listeners, the tenant."""
        self.report(destination, method="CONNECT", url=f"tcp://{destination}", decision=decision, status=403)
        await manner.deny(client, destination, decision, self._watch.authority)

    async def _intercept(self, client: socket.socket, destination: Destination) -> None:
        try:
            async with asyncio.timeout(_FIRST_BYTES):
                peeked, found = await first_bytes(client)
        except TimeoutError:
            peeked, found = b"", Sniffed("other")
        if found.kind in ("tls", "http"):
            interception = self._watch.interception()
            try:
                await getattr(interception, found.kind)(client, peeked, destination, self)
            except Denied as denied:
                refused = Decision(False, denied.rule, denied.reason)
                self.report(destination, method="CONNECT", url=f"tcp://{destination}", decision=refused, status=403)
        else:
            # Silence is no protocol either: whoever says nothing is never passed on unseen.
            reason = Message(
                "{destination} is intercepted, but this is neither TLS nor HTTP", destination=str(destination)
            )
            if not self.policy.intercepts_by_rule(destination.host):
                reason = Message(
                    "{destination} is intercepted, but this is neither TLS nor HTTP; to allow another protocol, add "
                    "'tcp:{destination}' to network.allowed_hosts",
                    destination=str(destination),
                )
            await self.deny(client, destination, Decision(False, "network.intercept", reason), ClientStyle())

    async def _ssh(self, client: socket.socket, destination: Destination, decision: Decision) -> None:
        """Passes what both ends say is ssh; everything else on its port is looked into like any other."""
        try:
            upstream = await self.dial(destination, decision)
        except (Denied, OSError):
            return await self._intercept(client, destination)  # which says why, to those who speak HTTP
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
        self, client: socket.socket, destination: Destination, decision: Decision, manner: ClientStyle
    ) -> None:
        try:
            upstream = await self.dial(destination, decision)
        except Denied as denied:
            refused = Decision(False, denied.rule, denied.reason)
            return await self.deny(client, destination, refused, manner)
        except OSError as problem:
            url = f"tcp://{destination}"
            self.report(destination, method="CONNECT", url=url, decision=decision, status=502, error=str(problem))
            return await manner.fail(client, destination, str(problem), self._watch.authority)
        with upstream:
            await manner.welcome(client, upstream)
            mismatch = await self._wrong_name(client, upstream, destination)
            if mismatch is not None:
                return await self.deny(client, destination, mismatch, ClientStyle())
            await self._carry(client, upstream, destination, decision)

    async def _carry(
        self, client: socket.socket, upstream: socket.socket, destination: Destination, decision: Decision
    ) -> None:
        """Moves bytes, unseen, until both ends are done."""
        started = time.monotonic()
        self._reporter.note(decision, destination)
        relay = Relay(client, upstream)
        self._door.carries(relay)
        try:
            await relay.run()
        finally:
            moved = relay.sent.total, relay.received.total
            self._reporter.tell(decision, "CONNECT", f"tcp://{destination}", 200, *moved, time.monotonic() - started)

    async def _wrong_name(
        self, client: socket.socket, upstream: socket.socket, destination: Destination
    ) -> Decision | None:
        """A ClientHello for another name than the connection's is a try to reach a neighbour on a shared address.
        What speaks no TLS, or lets the server speak first, has no name to check."""
        async with asyncio.timeout(IDLE):
            await either_readable(client, upstream)
        try:
            data = client.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return None
        if data != TLS or destination.host == HOST_NAME:
            return None
        try:
            async with asyncio.timeout(_FIRST_BYTES):
                _, found = await first_bytes(client)
        except TimeoutError:
            return Decision(
                False,
                "tls",
                "no complete ClientHello for {destination} came in {first_bytes:.0f} s",
                destination=destination,
                first_bytes=_FIRST_BYTES,
            )
        if found.kind != "tls":
            return Decision(
                False, "tls", "what came for {destination} began as TLS and was not", destination=destination
            )
        return None if found.name is None else self._judge_sni(found.name, destination)

    def _judge_sni(self, name: str, destination: Destination) -> Decision | None:
        try:
            host = canonical_host(name)
        except InvalidHost:
            return Decision(
                False,
                "tls",
                "the ClientHello for {destination} names something that is no host",
                destination=destination,
            )
        if destination.named_by == "address" or parse_address(destination.host) is not None:
            denied = self.policy.name(host)
            return denied if denied.rule.startswith("network.denied_hosts") else None
        if host == destination.host:
            return None
        return Decision(
            False,
            "tls",
            "the connection is to {destination}, but its ClientHello names {host}",
            destination=destination,
            host=host,
        )

    async def dial(self, destination: Destination, decision: Decision | None = None) -> socket.socket:
        """See GateContext.dial."""
        decision = decision or self.judge(destination)
        if not decision:
            raise Denied(decision.rule, decision.reason)
        return await self._dialer.dial(destination, self.policy, self.network.upstream_proxy)

    async def dial_inside(self, port: int) -> socket.socket:
        """A connection to a tenant's listening port, asked of the guest."""
        return await in_thread(self._watch.dial, "127.0.0.1", port)

    # -- DNS ----------------------------------------------------------------------------------------------------

    def lookup(self, name: str, kind: str) -> tuple[bytes, bytes] | None:
        """The synthetic addresses of a name, whether it may be reached or not: that is judged, and told, when somebody
        connects. A look-up that fails would make clients try again, and hear nothing of the reason."""
        return self._names.addresses(name) if parse_address(name) is None else None


def run(watch: GateThread, stop: socket.socket) -> None:
    """The rest of the watching thread's life."""

    async def main() -> None:
        await Gate(watch).run(stop)

    with asyncio.Runner() as runner:
        runner.run(main())
