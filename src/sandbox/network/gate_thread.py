"""One sandbox's gate, before and while it runs. Its thread starts, and its code is loaded, at the first connection."""

from __future__ import annotations

from _functools import partial
from _thread import allocate_lock as Lock  # `threading` is loaded later: see `wiring.py`

from sandbox import sockets as socket
from sandbox.errors import ConfigError
from sandbox.plan.mount_operations import Bind

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    import threading
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Mapping, Sequence
    from socket import socket as StandardSocket
    from typing import Protocol, TypeAlias

    from sandbox.asks.pending import Asks
    from sandbox.config.model import Network
    from sandbox.config.signing_section import Signing
    from sandbox.guest.carried import CarriedDatagrams, CarriedListener
    from sandbox.network.credentials.logins import Logins
    from sandbox.network.destination import Interception
    from sandbox.network.gate.publish import Published
    from sandbox.network.tls.ca import Authority
    from sandbox.network.tls.stored_authority import Generation
    from sandbox.plan.mount_operations import Operation
    from sandbox.plan.plan import ImageRoot
    from sandbox.policy.network import NetworkPolicy
    from sandbox.readiness import Watch

    Listening: TypeAlias = StandardSocket | CarriedListener | CarriedDatagrams

    class Furnished(Protocol):
        """What `furnish` uses of a plan."""

        environment: dict[str, str]
        own_files: str
        files: list[tuple[str, int, bytes]]
        after_seal: list[Operation]
        network: bool
        proxy_token: str | None
        image: ImageRoot | None

        def show(self, source: str, target: str, writable: bool) -> None: ...


_OURS = ("tcp", "udp", "lo", "proxy")  # the guest also hands over other sockets

HOOKS = ("on_request", "on_response", "on_tls_verify")


def _at(plan: Furnished, text: str) -> str:
    """`text` (a path, or a variable's value) with the directory where this plan keeps the files that make tenants trust
    the gate."""
    return text.replace("/etc/sandbox-", f"{plan.own_files}/sandbox-")


def nobody_asked() -> Asks:
    """For a gate without a sandbox: there is no owner to ask. Raises ConfigError."""
    raise ConfigError("nobody can be asked here", path="network.ask")


class GateThread:
    """Owns the listening sockets that the guest handed over, and everything the gate needs.

    `sockets` are named as in `guest/protocol.md`: `tcp4`, `tcp6`, `udp4`, `udp6`, `lo4:5432`, …; `proxy` is a listener
    for explicit proxy requests, which must present `proxy_token` when there is one. `dial(address, port)` connects to a
    tenant's port from inside. `resolve(host, port)` replaces the system's resolver. Raises ConfigError when `network`
    cannot be used.
    """

    def __init__(
        self,
        sockets: Mapping[str, _socket.socket],
        network: Network,
        *,
        sandbox_id: str,
        emit: Callable[[dict[str, object]], None],
        record: Callable[..., None],
        dial: Callable[[str, int], StandardSocket],
        hooks: object | None = None,
        resolve: Callable[[str, int], Sequence[str]] | None = None,
        placeholders: Mapping[str, str] | None = None,
        proxy_token: str | None = None,
        logins: Logins | None = None,
        asks: Callable[[], Asks] = nobody_asked,
        given_authority: Authority | None = None,
        signing: Signing | None = None,
    ) -> None:
        self.sockets: Mapping[str, _socket.socket] = sockets
        self.sandbox_id = sandbox_id
        self.emit = emit
        self.record = record
        self.dial = dial
        self.hooks = hooks
        self.resolve = resolve
        self.placeholders = dict(placeholders or {})
        self.proxy_token = proxy_token
        self.logins = logins
        self.asks = asks
        self.signing = signing  # None: programs inside get no signatures
        self.network = network
        self._authority = given_authority
        # Stays true: a placeholder that was handed out stays blocked.
        self.had_secrets = bool(network.secrets) or logins is not None
        self._policy: NetworkPolicy | None = None
        self._not_running()
        if network.allowed_hosts or network.denied_hosts or self._may_intercept():
            self._policy = _compiled(network)
        self.published = _published(network.publish)

    def inherit(self, origin: GateThread) -> None:
        """For a fork, before `furnish`: what its origin was ever given stays blocked and hidden here as well."""
        if origin.had_secrets:
            self.had_secrets = True
            self.interception().inherit(origin.interception())

    def _not_running(self) -> None:
        """Sets the state before the first connection."""
        self.listening: dict[str, Listening] = {}  # `sockets`, once the gate runs
        self.pid: int | None = None  # a process that all tenants descend from, if it is on this machine
        self._interception: Interception | None = None
        self._generation: Generation | None = None
        self._pointed: dict[str, str] = {}  # the variables that name the files with our authority
        self._lock = Lock()
        self._updating = Lock()  # held while programs that print secrets run; `_lock` is not
        self._thread: threading.Thread | None = None
        self.loop: AbstractEventLoop | None = None  # the gate's own, while it runs
        self._closed = False
        self._watch: Watch | None = None
        self._stopper: socket.socket | None = None

    @property
    def policy(self) -> NetworkPolicy:
        """The compiled configuration."""
        if self._policy is None:
            self._policy = _compiled(self.network)
        return self._policy

    def furnish(self, plan: Furnished) -> None:
        """Adds to a plan the certificates that tenants need to trust the gate, when it intercepts a connection or
        refuses one over TLS."""
        if plan.proxy_token is not None:
            if (certificate := self.ca_certificate()) is not None:
                from sandbox.network.tls.own_trust import put_in_directory

                self._pointed = dict(put_in_directory(plan, certificate, self.network.ca_certificates))
            return
        if not plan.network:
            return
        from sandbox.network.tls.stored_authority import current

        self._generation = current()
        if self._may_intercept() and not _only_logins(self):
            self.interception()  # reports mistakes in secrets and scripts before a tenant exists
        apart = self.network.ca_certificates or self.network.authority_certificate
        shown = None if apart else self._generation
        if shown is not None and plan.image is not None:
            from sandbox.network.tls.image_trust import for_image

            shown = for_image(shown, plan.image.source)
        if shown is None:
            from sandbox.network.tls.own_trust import show_own

            return self._point_to(plan, show_own(plan, self.authority().pem, self.network.ca_certificates))
        for source, target in shown.files():
            plan.show(source, _at(plan, target), False)
        for path, by in shown.covered:
            plan.after_seal.append(Bind(path, _at(plan, by), read_only=True, optional=True))
        self._point_to(plan, {name: _at(plan, value) for name, value in shown.environment.items()})

    def take_secrets(self, plan: Furnished) -> dict[str, str]:
        """After `update` gave a running sandbox its first secrets: checks them, makes its programs trust the gate as if
        the secrets had been there from the start, and returns every secret's placeholder. Raises ConfigError."""
        if plan.proxy_token is not None and not self._pointed:
            raise ConfigError(
                "cannot be given late with this engine, unless `network.intercept` is on", path="network.secrets"
            )
        interception = self.interception()
        plan.environment.update(self._pointed)
        return interception.placeholders(self.network.secrets)

    def _point_to(self, plan: Furnished, environment: Mapping[str, str]) -> None:
        self._pointed = dict(environment)
        if self._may_intercept():
            plan.environment.update(environment)
            return
        # Most connections are passed, so variables that are already set stay. And every java prints a line about its
        # variable.
        for name, value in environment.items():
            if name != "JAVA_TOOL_OPTIONS":
                plan.environment.setdefault(name, value)

    def authority(self) -> Authority:
        """The authority that tenants trust. Its key is read on first use. Call it under the lock or in the gate's
        thread. Raises ConfigError when it is a given one that cannot be used."""
        if self._authority is None:
            from sandbox.network.tls.ca import Authority

            given = self.network.authority_certificate, self.network.authority_key
            stored = self._generation.directory if self._generation is not None else None
            self._authority = Authority.chosen(*given, stored=stored)
        return self._authority

    def start(self) -> None:
        """Begins to watch for connections. Returns at once."""
        self._keep_own()
        listeners = [*self.sockets.values(), *(listener for _, listener in self.published)]
        if listeners:
            from sandbox.readiness import Watch

            self._watch = Watch(listeners, self._start_gate)

    def _keep_own(self) -> None:
        self.sockets = {name: sock for name, sock in self.sockets.items() if name.startswith(_OURS)}

    def _start_gate(self) -> None:
        """A connection or a DNS query has arrived."""
        import threading

        with self._lock:
            if not self._closed:
                stop, self._stopper = socket.socketpair()
                self._thread = threading.Thread(
                    target=self._run_gate, args=(stop,), name=f"gate-{self.sandbox_id}", daemon=True
                )
                self._thread.start()

    def _run_gate(self, stop: socket.socket) -> None:
        from sandbox.network.gate.gate import run

        self.listening = {name: usable(name, sock) for name, sock in self.sockets.items()}
        with socket.standard(stop) as stopped:
            run(self, stopped)

    def update(self, network: Network) -> None:
        """New connections see the new configuration at once. Raises ConfigError and changes nothing."""
        for name in ("publish", "authority_certificate", "authority_key"):
            if getattr(network, name) != getattr(self.network, name):
                raise ConfigError("cannot be changed while the sandbox runs", path=f"network.{name}")
        policy = _compiled(network)
        with self._updating:
            interception = self._interception
            if interception is not None:
                interception.update(network)
            elif network.policy_script is not None:
                from sandbox.network.intercept.script import Script

                Script(
                    network.policy_script, network.policy_secrets, partial(_print, self.emit)
                )  # whether it can be loaded
            with self._lock:
                self.network, self._policy = network, policy
                self.had_secrets = self.had_secrets or bool(network.secrets)
                if self._interception is not interception and self._interception is not None:
                    self._interception.update(network)  # made meanwhile, from the configuration before

    def _may_intercept(self) -> bool:
        network = self.network
        ruled = bool(network.http.allow or network.http.deny or self.had_secrets or network.strip_response_headers)
        hooked = any(getattr(self.hooks, name, None) for name in HOOKS)  # an object may have hooks for files alone
        return ruled or network.intercept or network.policy_script is not None or hooked

    def wants_interception(self, host: str) -> bool:
        """Whether a hook, script or secret requires that connections to `host` are intercepted."""
        return self._may_intercept() and self.interception().wants(host)

    def interception(self) -> Interception:
        """The interceptor, created on first use. The gate's thread asks for it all the time: it waits for nobody once
        there is one."""
        if self._interception is not None:
            return self._interception
        with self._lock:
            if self._interception is None:
                from sandbox.network.intercept.interception import Interception

                self._interception = Interception(
                    self.network,
                    self.placeholders,
                    self.hooks,
                    log=partial(_print, self.emit),
                    authority=self.authority,
                    logins=self.logins,
                    complain=partial(_complain, self.record),
                )
            return self._interception

    def answers(self, patience: float) -> bool:
        """Whether the gate works. One that was not needed yet does: it starts with the first connection."""
        thread, loop = self._thread, self.loop
        if thread is None or loop is None:
            return not self._closed
        if not thread.is_alive():
            return False
        from sandbox.network.threads import responds

        return responds(loop, patience)

    async def finish(self) -> None:
        """Called in the gate's thread, once every connection has ended."""
        if self._interception is not None:
            await self._interception.finish()

    def ca_certificate(self) -> bytes | None:
        """The certificate that tenants trust, PEM, when connections may be intercepted; else None, at no cost."""
        return self.interception().ca_certificate() if self._may_intercept() else None

    def close(self) -> None:
        """Ends every connection and the thread, and closes the sockets. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._watch is not None:
            self._watch.cancel()
        if self._stopper is not None and self._thread is not None:
            try:
                self._stopper.send(b"x")
            except OSError:
                pass  # the thread has ended
            import threading

            if self._thread is not threading.current_thread():
                self._thread.join()
            self._stopper.close()
        if self._interception is not None:
            self._interception.close()
        for sock in (*self.sockets.values(), *self.listening.values()):
            sock.close()
        for _, listener in self.published:
            listener.close()


def usable(name: str, sock: _socket.socket) -> Listening:
    """The socket as the gate uses it. Where none can cross, what the guest handed over is a local one."""
    if sock.family != socket.AF_UNIX:
        return socket.standard(sock)
    from sandbox.guest.carried import CarriedDatagrams, CarriedListener

    return CarriedDatagrams(sock) if name.startswith("udp") else CarriedListener(sock)


def _complain(record: Callable[..., None], setting: str, error: str) -> None:
    """Records that new tokens could not be written to the person's file."""
    said = f"{setting}: renewed tokens could not be written ({error}); they are good for this sandbox alone"
    record("policy_decision", said, severity="warn")


def _print(emit: Callable[[dict[str, object]], None], line: str) -> None:
    """Emits what a policy script prints."""
    from sandbox.events import event

    emit(event("log", source="policy_script", message=line))


def _published(entries: Sequence[str]) -> list[tuple[Published, StandardSocket]]:
    if not entries:
        return []
    from sandbox.network.gate.publish import listen_all

    return listen_all(entries)


def _compiled(network: Network) -> NetworkPolicy:
    """Compiles the configuration. Raises ConfigError, so that a mistake is not found only at a refusal."""
    from sandbox.policy.network import NetworkPolicy

    if network.upstream_proxy is not None:
        from sandbox.network.gate.dialer import ProxyAddress

        ProxyAddress(network.upstream_proxy)
    if network.proxy_socket_hosts and network.proxy_socket is None:
        raise ConfigError("needs network.proxy_socket, the proxy's socket", path="network.proxy_socket_hosts")
    return NetworkPolicy(network)


def _only_logins(gate: GateThread) -> bool:
    """Whether logins are all that the gate intercepts for. They were checked when they were read; what else it takes
    to intercept is loaded with the first connection."""
    network = gate.network
    return gate.logins is not None and not (network.secrets or network.policy_script or gate.hooks)
