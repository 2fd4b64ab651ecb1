"""The interface between the gate, which names and judges connections, and the interceptor.

The gate (`gate/gate.py`) accepts a tenant's connection, finds out its destination and asks the policy. Then it passes
the bytes (`gate/relay.py`) or hands the connection to the interceptor (`intercept/interception.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypedDict

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable
    from typing import Unpack

    from sandbox.config.model import Network
    from sandbox.network.http.message import Request, Response
    from sandbox.policy.decision import Decision
    from sandbox.policy.network import NetworkPolicy


class Destination:
    """Where a connection goes: a canonical host name or address literal, a port, and how we know.

    `named_by` is "dns" (the tenant connected to an address that we gave for the name), "address" (it connected to an
    address literal), "connect" (an explicit proxy request) or "hook". It is never SNI or Host: those are claims, and
    are checked against this.
    """

    __slots__ = ("host", "port", "named_by")

    def __init__(self, host: str, port: int, named_by: str) -> None:
        self.host = host
        self.port = port
        self.named_by = named_by

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __repr__(self) -> str:
        return f"Destination({str(self)!r}, {self.named_by!r})"


class ConnectionOutcome(TypedDict, total=False):
    """What became of a connection or a request."""

    status: int
    sent: int
    received: int
    seconds: float
    error: str


class GateContext(Protocol):
    """What handling one connection may use: `gate.Gate`. Everything runs in the gate's event loop."""

    @property
    def network(self) -> Network:
        """The configuration as it is now; `update_network` replaces it."""

    @property
    def policy(self) -> NetworkPolicy:
        """The same, compiled: `connect(host, port)`, `request(method, host, port, path)`, …"""

    @property
    def asks_first(self) -> bool:
        """Whether nothing may be dialled before `admit` allowed a request: the host is not listed, and the owner is
        asked about each request."""

    async def admit(self, destination: Destination, method: str, path: str) -> None:
        """Waits until the owner has allowed this request. Raises Denied. Does nothing where nobody is asked."""

    def judge(self, destination: Destination) -> Decision:
        """Whether the destination may be connected to, by the policy and by the policy script."""

    async def dial(self, destination: Destination) -> socket.socket:
        """A connected, non-blocking socket to an address of `destination` that the policy was asked about.

        Asks the policy itself, so that no caller can forget: raises `errors.Denied` when the host, port or any
        resolved address is refused, `OSError` when it cannot be reached. Goes through `upstream_proxy`.
        """

    def report(
        self,
        destination: Destination,
        *,
        method: str,
        url: str,
        decision: Decision,
        **outcome: Unpack[ConnectionOutcome],
    ) -> None:
        """Emits a `network` event and writes an entry in the record. `url` contains no secret value."""

    def secret_used(self, destination: Destination, direction: str, name: str) -> None:
        """Writes an entry in the record: the secret `name` was put into a request to `destination` ("outbound"), or
        its value was taken out of the response ("inbound")."""


class Interception(Protocol):
    """`interception.Interception`: created once per sandbox, when it is first needed.

    `client` is the accepted, non-blocking socket with **nothing read from it**. `peeked` is what MSG_PEEK returned: a
    complete ClientHello for TLS, at least the first bytes for HTTP. The callee always closes `client`. An exception is
    recorded and closes the connection.
    """

    def update(self, network: Network) -> None:
        """The configuration changed; new requests see it. Revoked placeholders stay blocked."""

    def inherit(self, origin: Any) -> None:
        """Everything that `origin`, another Interception, was ever given stays blocked and hidden here as well."""

    def wants(self, host: str) -> bool:
        """Whether connections to `host` must be intercepted for a hook, script or secret."""

    def host_allowed(self, host: str) -> Decision | None:
        """What the policy script's `is_host_allowed` says; None when there is no such function."""

    def placeholders(self, names: Iterable[str]) -> dict[str, str]:
        """What tenants have instead of these secrets."""

    def ca_certificate(self) -> bytes:
        """The certificate of the authority that tenants trust, PEM."""

    async def finish(self) -> None:
        """Waits for work that must not be left half done, once every connection has ended."""

    def refuse_placeholders(self, head: bytes, destination: Destination) -> None:
        """Raises Denied when a request head that the gate itself reads (CONNECT) contains a placeholder."""

    def close(self) -> None:
        """Releases what it holds."""

    async def fetch(self, request: Request, context: GateContext) -> Response:
        """The answer to a request that the gate makes for a tenant. A refusal is an answer too."""

    async def tls(self, client: socket.socket, peeked: bytes, destination: Destination, context: GateContext) -> None:
        """Terminates TLS and speaks HTTP/1.1, HTTP/2 or WebSocket to both sides."""

    async def http(self, client: socket.socket, peeked: bytes, destination: Destination, context: GateContext) -> None:
        """The same for plain HTTP, on any port."""
