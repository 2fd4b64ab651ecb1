"""What the thread that runs the gate gives to it. Types only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable, Sequence

    from sandbox.asks.pending import Asks
    from sandbox.config.model import Network
    from sandbox.config.signing_section import Signing
    from sandbox.network.destination import Interception
    from sandbox.network.gate.publish import Published
    from sandbox.network.tls.ca import Authority
    from sandbox.policy.network import NetworkPolicy


class Setup(Protocol):
    """What the gate is given: `gate_thread.GateThread`."""

    asks: Callable[[], Asks]
    dial: Callable[[str, int], socket.socket]
    emit: Callable[[dict[str, object]], None]
    had_secrets: bool
    listening: dict[str, Any]  # sockets, or what stands for them: guest/carried.py
    loop: asyncio.AbstractEventLoop | None
    network: Network
    pid: int | None
    proxy_token: str | None
    published: list[tuple[Published, socket.socket]]
    record: Callable[..., None]
    sandbox_id: str
    signing: Signing | None
    resolve: Callable[[str, int], Sequence[str]] | None

    @property
    def policy(self) -> NetworkPolicy: ...

    def authority(self) -> Authority: ...

    def interception(self) -> Interception: ...

    def wants_interception(self, host: str) -> bool: ...

    async def finish(self) -> None: ...
