"""The gate of a sandbox on another machine, in this process: `network.gate: client`.

The other machine passes each connection of its tenants on, unjudged; this gate decides, puts secrets in, asks and
records, and dials from here. So neither rules nor secrets leave this process, and the other machine needs no network.
"""

from __future__ import annotations

import os
import socket
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from sandbox.asks.lazy_asks import Asking
from sandbox.config.dialects import from_client
from sandbox.config.from_program import read_config
from sandbox.config.home import home
from sandbox.engines.choose import with_mode_defaults
from sandbox.errors import GuestError, SandboxError
from sandbox.guest import frames
from sandbox.guest.bridge import Bridge
from sandbox.hook_names import ASK, HTTP, names_of
from sandbox.info import Ask, Port
from sandbox.network.gate_thread import GateThread
from sandbox.network.secrets.placeholders import placeholders
from sandbox.network.tls.ca import Authority
from sandbox.network.tls.further_certificates import further_certificates
from sandbox.network.tls.stored_authority import current
from sandbox.registry.servers import refuse_servers
from sandbox.rpc.tunnel import tunnel
from sandbox.sandbox import open_record
from sandbox.serving import with_placeholders

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandbox.audit.record import Record
    from sandbox.config.model import Network
    from sandbox.rpc.connection import Connection

# What the other machine still needs: which ports inside lead to a gate, and what is about its own files.
THEIRS = 2**40  # is added to the numbers of questions there, which must not be taken for ones of this gate
_THERE = ("allowed_hosts", "allow_git", "allow_localhost", "localhost_ports", "unix_sockets")


class HomeGate:
    """One sandbox's gate. It is made first, because the other machine must know its certificate; `serve` begins."""

    def __init__(self, asked: Mapping[str, Any], hooks: object | None, origin: HomeGate | None = None) -> None:
        """`origin` is the gate of the sandbox that this one was forked from. Raises ConfigError."""
        self.asked, self.hooks = dict(asked), hooks
        self._said = from_client(asked)
        self._config = with_mode_defaults(read_config(self._said))
        network = self._config.network
        if origin is not None:
            network = network.changed({"publish": []})  # the origin has these ports
        refuse_servers(home(), network.localhost_ports)
        self._held = placeholders(network.secrets)
        self._changing = Lock()  # held while programs that print secrets run
        self._making = Lock()
        self._connection: Connection | None = None
        self._record: Record | None = None
        self._asking: Asking | None = None
        self._line: socket.socket | None = None
        self._gate = GateThread(
            {}, network, sandbox_id="", emit=self._emit, record=self._write, dial=self._dial, hooks=hooks,
            placeholders=self._held, asks=lambda: self._questions().asks(), given_authority=_authority(network),
        )  # fmt: skip
        if origin is not None:
            self._gate.inherit(origin._gate)

    def there(self) -> dict[str, Any]:
        """What the other machine is sent. Raises ConfigError for mistakes in secrets and scripts."""
        try:
            intercepted = self._gate.ca_certificate()
        except BaseException:
            self._gate.close()
            raise
        network = {key: value for key, value in self._said.get("network", {}).items() if key in _THERE}
        certificate = intercepted or self._gate.authority().pem
        certificate += further_certificates(self._config.network.ca_certificates)
        gate = {"certificate": certificate.decode(), "intercepts": intercepted is not None}
        sent = {**self._said, "network": network, "gate": gate}
        variables = with_placeholders(self._config.environment.set, self._held)
        if variables:
            given = self._said["environment"]
            sent["environment"] = {**given, "set": {**given["set"], **variables}}
        return sent

    def hooks_there(self) -> list[str]:
        """The names of the hooks that are about files, and so are asked from there."""
        return [] if self.hooks is None else [one for one in names_of(self.hooks) if one not in (*HTTP, ASK)]

    def serve(self, connection: Connection, id: str) -> None:
        """Begins to take the connections of that sandbox. Raises SandboxError when the other machine passes none on."""
        self._connection, self._gate.sandbox_id = connection, id
        connection.admit_event = _admitted
        self._record = open_record(self._config, id)
        self._line, theirs = socket.socketpair()
        bridge = Bridge(tunnel(connection, "gate", {}), theirs)
        Thread(target=bridge.run, name="sandbox-home-gate", daemon=True).start()
        try:
            frames.send(self._line, {"t": "setup", "carried": True})
            told, fds = frames.receive(self._line)
            if told["t"] != "ready":
                raise GuestError("it said {kind!r} first", kind=told["t"])
        except GuestError as problem:
            raise SandboxError("the node does not pass connections on: {problem}", problem=problem) from problem
        os.close(fds[0])  # a null device, which only a guest's owner needs
        found = [socket.socket(fileno=fd) for fd in fds[1:]]
        self._gate.sockets = dict(zip(told["sockets"][1:], found, strict=True))
        self._gate.start()

    def forked(self, connection: Connection, id: str) -> HomeGate:
        """The gate of a sandbox that was forked from this one. It publishes no ports. Raises SandboxError."""
        made = HomeGate(self.asked, self.hooks, self)
        made.serve(connection, id)
        return made

    def update(self, changes: Mapping[str, Any]) -> None:
        """Changes the configuration. Raises ConfigError, changing nothing."""
        with self._changing:
            network: Network = self._gate.network.changed(dict(changes))
            refuse_servers(home(), network.localhost_ports)
            self._gate.update(network)
        self._write("policy_decision", "network configuration changed", metadata={"keys": ", ".join(changes)})

    @property
    def ports(self) -> list[Port]:
        """The published ports, on this machine."""
        published = [(rule, one.getsockname()) for rule, one in self._gate.published if one.fileno() >= 0]
        return [Port(name[0], name[1], rule.inside) for rule, name in published]

    def asks(self, watch: bool, there: list[dict[str, Any]]) -> list[Ask]:
        """The questions that wait: those of this gate, and those `there`."""
        if watch:
            self._questions().watch()
        told = [_admitted({"type": "ask", "ask": one}) for one in there]
        return self._questions().waiting() + [Ask(**one["ask"]) for one in told if one is not None]

    def answer(self, id: int, answer: str, by: str) -> int:
        """Answers a question of this gate, and returns 0; or the number there of one that is asked there.

        Raises NotFound, InvalidArgument.
        """
        if id >= THEIRS:
            return id - THEIRS
        self._questions().answer(id, answer, by)
        return 0

    def close(self) -> None:
        """Ends every connection. Idempotent."""
        self._gate.close()
        if self._asking is not None:
            self._asking.close()
        if self._line is not None:
            self._line.close()
        if self._record is not None:
            self._record.close()

    # -- what the gate uses

    def _questions(self) -> Asking:
        with self._making:
            if self._asking is None:
                assert self._record is not None and self._connection is not None
                events: Any = self._connection.events
                self._asking = Asking(self._gate.sandbox_id, self._record, events, self.hooks)
            return self._asking

    def _emit(self, happened: dict[str, Any]) -> None:
        if self._connection is not None:
            self._connection.events.emit(happened)

    def _write(self, *entry: Any, **more: Any) -> None:
        if self._record is not None:
            self._record.write(*entry, **more)

    def _dial(self, address: str, port: int) -> socket.socket:
        assert self._connection is not None
        return tunnel(self._connection, "dial", {"port": port, "address": address})


def _admitted(happened: dict[str, Any]) -> dict[str, Any] | None:
    """An event from the other machine. Its questions get numbers that no question of ours has; None if it has none."""
    if happened.get("type") != "ask":
        return happened
    told = happened.get("ask")
    number = told.get("id") if isinstance(told, dict) else None
    if not isinstance(told, dict) or type(number) is not int or number <= 0:
        return None
    return {**happened, "ask": {**told, "id": number + THEIRS}}


def _authority(network: Network) -> Authority:
    """Whose certificate the tenants trust: the given authority, or this user's own. Raises ConfigError."""
    stored = current()
    given = network.authority_certificate, network.authority_key
    return Authority.chosen(*given, stored=stored.directory if stored is not None else None)
