"""The gate of a sandbox whose client judges its connections: here they are only passed on (docs/cluster.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sandbox import sockets as socket
from sandbox.errors import ConfigError, InvalidArgument, SandboxClosed
from sandbox.network.gate_thread import GateThread, usable

if TYPE_CHECKING:
    from socket import socket as StandardSocket

    from sandbox.config.model import Network
    from sandbox.network.gate_thread import Furnished


class ClientGate(NamedTuple):
    """What a client says about its gate: the certificate that tenants must trust, in PEM, and whether it intercepts."""

    certificate: bytes
    intercepts: bool

    def gate(self, *given: Any, **more: Any) -> GateThread:
        """What stands for the gate here. Takes what `GateThread` takes; raises ConfigError."""
        return ForwardedGate(self, *given, **more)


class ForwardedGate(GateThread):
    """Until the client has connected its gate, connections wait; when it has left, there are none any more."""

    def __init__(self, client: ClientGate, *given: Any, **more: Any) -> None:
        self._client = client
        self._stream: StandardSocket | None = None
        super().__init__(*given, **more)
        for name in ("secrets", "publish", "policy_script", "policy_secrets"):
            if getattr(self.network, name):
                self.close()
                raise ConfigError("belongs to the gate of the client", path=f"network.{name}")

    def furnish(self, plan: Furnished) -> None:
        """As `GateThread.furnish`, with the client's certificate. Raises ConfigError."""
        if plan.proxy_token is not None or not plan.network:
            raise ConfigError("needs an engine whose connections all arrive at a gate", path="network.gate")
        from sandbox.network.tls.own_trust import show_own

        self._point_to(plan, show_own(plan, self._client.certificate, ()))

    def _may_intercept(self) -> bool:
        return self._client.intercepts

    def start(self) -> None:
        """Nothing is accepted before `connect`."""
        self._keep_own()

    def connect(self) -> StandardSocket:
        """The client's end of the stream that carries all connections. Raises InvalidArgument at the second call."""
        from socket import socketpair

        with self._lock:
            if self._closed:
                raise SandboxClosed("the sandbox is closed")
            if self._stream is not None:
                raise InvalidArgument("the client has connected its gate already")
            ours, self._stream = socketpair()
        self._start_gate()
        return ours

    def _run_gate(self, stop: socket.socket) -> None:
        from sandbox.network.forwarding import Forwarder

        assert self._stream is not None
        self.listening = {name: usable(name, sock) for name, sock in self.sockets.items()}
        with socket.standard(stop) as stopped:
            Forwarder(self.listening, self._stream, stopped).run()

    def update(self, network: Network) -> None:
        raise ConfigError("the client's own gate judges connections", path="network.gate")

    def answers(self, patience: float) -> bool:
        thread = self._thread
        return not self._closed and (thread is None or thread.is_alive())
