"""What a sandbox needs to intercept connections: its authority, its secrets and its hooks.

There is one `Interception` for each sandbox that needs one. It is light to import, because a sandbox with a secret
loads it when it starts. `inspection.py` handles connections, `exchange.py` handles requests, and `destination.py`
declares what the gate uses of this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.network.http.body_memory import Allowance
from sandbox.network.intercept.hooks import HookRunner
from sandbox.network.secrets.store import Secrets

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable, Mapping

    from sandbox.config.model import Network
    from sandbox.network.credentials.logins import Logins
    from sandbox.network.destination import Destination, GateContext
    from sandbox.network.http.message import Request, Response
    from sandbox.network.intercept.inspection import Inspection
    from sandbox.network.intercept.script import Script
    from sandbox.network.tls.ca import Authority
    from sandbox.policy.decision import Decision


class Interception:
    """Raises ConfigError when a secret is invalid or the policy script cannot be loaded."""

    def __init__(
        self,
        network: Network,
        placeholders: Mapping[str, str],
        hooks: object | None = None,
        *,
        log: Callable[[str], None] | None = None,
        authority: Callable[[], Authority] | None = None,
        logins: Logins | None = None,
        complain: Callable[[str, str], None] | None = None,
    ) -> None:
        self._given_hooks = hooks
        self._log = log or (lambda line: None)
        self._network = network
        self._authority: Authority | None = None
        self._trusted_authority = authority
        self._inspection: Inspection | None = None
        self.secrets = Secrets(network.secrets, placeholders, logins, complain)
        self.hooks = HookRunner(hooks, _script(network, self._log))
        self.allowance = Allowance()

    def update(self, network: Network) -> None:
        """New requests see `network`. Changes nothing when it raises ConfigError."""
        old = self._network
        scripted = (network.policy_script, network.policy_secrets) != (old.policy_script, old.policy_secrets)
        hooks = HookRunner(self._given_hooks, _script(network, self._log)) if scripted else self.hooks
        self.secrets.update(network.secrets)
        self.hooks = hooks  # running requests keep the old ones
        if network.ca_certificates != old.ca_certificates:
            self._inspection = None
        self._network = network

    def inherit(self, origin: Interception) -> None:
        """See `destination.Interception`."""
        self.secrets.inherit(origin.secrets)

    def wants(self, host: str) -> bool:
        """Whether connections to `host` must be intercepted. With any secret, all hosts are: a placeholder on its way
        to the wrong host can only be stopped where it can be seen. The same holds for a login that nobody has made yet:
        its tokens must not come in."""
        logins = self.secrets.logins
        return bool(self.secrets) or bool(self.hooks) or (logins is not None and logins.may_log_in)

    def placeholders(self, names: Iterable[str]) -> dict[str, str]:
        """What tenants have instead of these secrets."""
        return self.secrets.placeholders(names)

    def host_allowed(self, host: str) -> Decision | None:
        """What the policy script's `is_host_allowed` says; None when there is no such function."""
        return self.hooks.host_allowed(host)

    def refuse_placeholders(self, head: bytes, destination: Destination) -> None:
        """Raises Denied when a request head that the gate itself reads (CONNECT) contains a placeholder."""
        self.secrets.refuse_in(head, destination.host, destination.port)

    @property
    def authority(self) -> Authority:
        """The given authority, which tenants trust; a new one when none was given. Created on first use."""
        if self._authority is None and self._trusted_authority is not None:
            self._authority = self._trusted_authority()
        elif self._authority is None:
            from sandbox.network.tls.ca import Authority

            self._authority = Authority()
        return self._authority

    def ca_certificate(self) -> bytes:
        """Its certificate, PEM."""
        return self.authority.pem

    async def tls(self, client: socket.socket, peeked: bytes, destination: Destination, context: GateContext) -> None:
        """See `destination.Interception`."""
        await self._look().tls(client, peeked, destination, context)

    async def http(self, client: socket.socket, peeked: bytes, destination: Destination, context: GateContext) -> None:
        """See `destination.Interception`."""
        await self._look().http(client, peeked, destination, context)

    async def fetch(self, request: Request, context: GateContext) -> Response:
        """See `destination.Interception`."""
        return await self._look().fetch(request, context)

    def _look(self) -> Inspection:
        if self._inspection is None:
            from sandbox.network.intercept.inspection import Inspection

            self._inspection = Inspection(self, self._network.ca_certificates)
        return self._inspection

    async def finish(self) -> None:
        """See `destination.Interception`."""
        await self.secrets.unfinished.finish()

    def close(self) -> None:
        """Does nothing: connections end with the gate's loop, and threads of hooks are not waited for."""


def _script(network: Network, log: Callable[[str], None]) -> Script | None:
    if network.policy_script is None:
        return None
    from sandbox.network.intercept.script import Script

    return Script(network.policy_script, network.policy_secrets, log)
