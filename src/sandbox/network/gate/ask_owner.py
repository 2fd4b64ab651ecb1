"""How a connection waits for the sandbox's owner: before it is dialled or, if intercepted, before each request."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from typing import TYPE_CHECKING

from sandbox.asks.question import HostSubject
from sandbox.errors import Denied, Message
from sandbox.network.gate.requester import requester
from sandbox.network.threads import in_thread
from sandbox.policy.decision import Decision

if TYPE_CHECKING:
    from typing import Any

    from sandbox.asks.pending import Asks
    from sandbox.asks.verdict import Verdict
    from sandbox.config.model import Network
    from sandbox.network.destination import Destination, GateContext
    from sandbox.policy.network import NetworkPolicy

_CLOSE, _CLOSE_WAIT = 7, 8  # states of TCP: reset, and closed by the other side


def granted(asks: Asks, destination: Destination) -> bool:
    """Whether the owner allowed `destination` for the sandbox's whole life."""
    return asks.granted(HostSubject(destination.host, destination.port))


def allowed(destination: Destination) -> Decision:
    """The decision for a destination that the owner allowed for this sandbox."""
    return Decision(True, "ask: sandbox", "{shown} was allowed by the sandbox's owner", shown=str(destination))


async def asked(
    asks: Asks,
    guest: int | None,
    client: socket.socket,
    destination: Destination,
    refusal: Decision,
    seconds: float,
    method: str = "",
    path: str = "",
) -> Decision:
    """Waits for the owner's answer about a connection, or about one request on it. Without an answer, `refusal`
    stands."""
    subject = HostSubject(destination.host, destination.port, method, path)
    if asks.asks_anew(subject):
        # This looks through all processes. A tenant that floods us with requests that are refused at once must not
        # trigger it.
        who = await in_thread(requester, guest, client)
        subject = HostSubject(destination.host, destination.port, method, path, who)
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Verdict] = loop.create_future()

    def settle(verdict: Verdict) -> None:
        if not answer.done():
            answer.set_result(verdict)

    def then(verdict: Verdict) -> None:
        try:
            loop.call_soon_threadsafe(settle, verdict)
        except RuntimeError:
            pass  # the gate has ended

    # In a thread, because it writes the question's number and its entry in the record to the disk.
    give_up = await in_thread(asks.ask, subject, seconds, then, lambda: _alive(client))
    try:
        verdict = await answer
    finally:
        give_up()
    if verdict:
        return Decision(True, f"ask: {verdict.answer}", verdict.why)
    return Decision(False, refusal.rule, Message("{first}; {second}", first=refusal.reason, second=verdict.why))


def _alive(client: socket.socket) -> bool:
    """Whether the client still has its end open. A client that gave up is likely to try again."""
    if sys.platform != "linux":
        return client.fileno() >= 0
    try:
        state = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 4)
    except OSError:  # one that the guest carries: its end shows on the local socket
        return client.fileno() >= 0 and not _ended(client)
    return struct.unpack("=B3x", state)[0] not in (_CLOSE, _CLOSE_WAIT)


def _ended(client: socket.socket) -> bool:
    import select

    waiting = select.poll()
    waiting.register(client.fileno(), getattr(select, "POLLRDHUP", 0))  # macOS does not tell
    return bool(waiting.poll(0))


class AskedContext:
    """The gate, for one intercepted connection to a host that is not listed: a `destination.GateContext`.

    The owner sees each request and answers for it, until the answer is for the whole sandbox.
    """

    asks_first = True

    def __init__(
        self, gate: GateContext, asks: Asks, guest: int | None, client: socket.socket, destination: Destination
    ) -> None:
        self._gate = gate
        self._asks = asks
        self._guest = guest
        self._client = client
        self._destination = destination
        self._admitted: Decision | None = None  # for dialling: a request that was allowed needs a connection
        self.report = gate.report
        self.secret_used = gate.secret_used

    @property
    def network(self) -> Network:
        return self._gate.network

    @property
    def policy(self) -> NetworkPolicy:
        return self._gate.policy

    async def admit(self, destination: Destination, method: str, path: str) -> None:
        """See GateContext.admit."""
        refusal = self._gate.judge(destination)
        if refusal:
            return
        if not self.network.ask or not self.policy.askable(destination.host, destination.port):
            raise Denied(refusal.rule, refusal.reason)  # the configuration changed meanwhile
        seconds = self.network.ask_timeout
        decision = await asked(self._asks, self._guest, self._client, destination, refusal, seconds, method, path)
        if not decision:
            raise Denied(decision.rule, decision.reason)
        self._admitted = decision

    def judge(self, destination: Destination) -> Decision:
        """See GateContext.judge."""
        decision = self._gate.judge(destination)
        same = (destination.host, destination.port) == (self._destination.host, self._destination.port)
        if decision or self._admitted is None or not same:
            return decision
        return self._admitted if self.policy.askable(destination.host, destination.port) else decision

    async def dial(self, destination: Destination, decision: Decision | None = None) -> socket.socket:
        """See GateContext.dial."""
        gate: Any = self._gate
        sock: socket.socket = await gate.dial(destination, self.judge(destination))
        return sock
