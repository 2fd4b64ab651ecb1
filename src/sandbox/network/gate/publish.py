"""Publishes a sandbox port on the host: `[address:]port:sandbox_port`."""

from __future__ import annotations

import socket

from sandbox.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    from sandbox.network.gate.relay import Relay

    class PublishGate(Protocol):
        """What a published port needs of the gate."""

        def expects_relay(self) -> None: ...

        def carries(self, relay: Relay) -> None: ...

        async def dial_inside(self, port: int) -> socket.socket: ...


class Published:
    """One entry of `network.publish`. Without an address it is on the host's loopback, never on every interface."""

    __slots__ = ("text", "address", "port", "inside")

    def __init__(self, text: str) -> None:
        self.text = text
        rest, _, inside = text.rpartition(":")
        address, _, port = rest.rpartition(":")
        self.inside = _port(inside, text, least=1)
        self.port = _port(port, text, least=0) if rest else self.inside
        self.address = address.removeprefix("[").removesuffix("]") or "127.0.0.1"

    def listen(self) -> socket.socket:
        """The host's listening socket. Raises ConfigError when the port is not available."""
        family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((self.address, self.port))
            sock.listen(128)
        except OSError as problem:
            sock.close()
            raise ConfigError(
                "cannot listen on {text!r}: {problem}", text=self.text, problem=problem, path="network.publish"
            ) from problem
        self.port = sock.getsockname()[1]
        return sock


def listen_all(entries: Sequence[str]) -> list[tuple[Published, socket.socket]]:
    """A listening socket for each entry. Raises ConfigError; then none is left open."""
    opened: list[tuple[Published, socket.socket]] = []
    try:
        for text in entries:
            rule = Published(text)
            opened.append((rule, rule.listen()))
    except BaseException:
        for _, listener in opened:
            listener.close()
        raise
    return opened


def _port(text: str, entry: str, least: int) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 5 and least <= int(text) < 65536:
        return int(text)
    raise ConfigError(
        "{entry!r}: write address:port:sandbox_port, as in '127.0.0.1:8080:80'", entry=entry, path="network.publish"
    )


async def serve_published(client: socket.socket, rule: Published, gate: PublishGate) -> None:
    """Connects a client on the host to the tenant's listening port, or resets it when nothing listens there."""
    from sandbox.network.gate.relay import Relay, reset

    gate.expects_relay()
    try:
        inside = await gate.dial_inside(rule.inside)
    except OSError:
        return reset(client)
    with inside:
        inside.setblocking(False)
        relay = Relay(client, inside)
        relay.tenants = relay.received
        gate.carries(relay)
        await relay.run()
