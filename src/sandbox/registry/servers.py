"""Which ports of this machine our own servers listen on: one file each in `~/.sandbox/server/ports`, with the process.

No sandbox may reach one, so a sandbox whose `localhost_ports` names such a port does not start.
"""

from __future__ import annotations

import os

from sandbox.errors import ConfigError, SandboxError
from sandbox.registry.process_identity import identity
from sandbox.registry.registry import entries

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def announce(home: str, port: int | str) -> None:
    """Records that this process listens on `port`, or on a Unix socket, for which any name will do.

    Raises SandboxError when a running sandbox may reach that port."""
    place = f"{home}/server/ports"
    os.makedirs(place, 0o700, exist_ok=True)
    with open(os.open(f"{place}/{port}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(f"{os.getpid()}\n{identity(os.getpid())}\n")
    for entry in entries(home):
        if entry.running and port in ((entry.config.get("network") or {}).get("localhost_ports") or ()):
            withdraw(home, port)
            raise SandboxError(
                "{id} may reach port {port} (network.localhost_ports); choose another one", id=entry.id, port=port
            )


def withdraw(home: str, port: int | str) -> None:
    """Removes that record. Idempotent."""
    try:
        os.unlink(f"{home}/server/ports/{port}")
    except FileNotFoundError:
        pass


def serves(home: str, pid: int) -> bool:
    """Whether that process is one of our running servers."""
    try:
        ports = os.listdir(f"{home}/server/ports")
    except OSError:
        return False
    return any(_owner(f"{home}/server/ports/{port}") == pid for port in ports)


def _owner(file: str) -> int | None:
    """The running process that wrote the file."""
    try:
        with open(file, encoding="ascii") as opened:
            pid, _, started = opened.read(200).partition("\n")
    except OSError:
        return None
    return int(pid) if pid.isdigit() and identity(int(pid)) == started.strip() else None


def refuse_servers(home: str, ports: Iterable[int]) -> None:
    """Raises ConfigError when one of our running servers listens on one of `ports`."""
    for port in ports:
        if _owner(f"{home}/server/ports/{port}") is not None:
            raise ConfigError(
                "port {port} is this machine's sandbox server, which no sandbox may reach",
                port=port,
                path="network.localhost_ports",
            )
