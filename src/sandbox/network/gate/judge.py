"""Judges a tenant's destination: by the policy, the policy script and what the owner has allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.network.gate import ask_owner
from sandbox.network.gate.synthetic_addresses import is_synthetic
from sandbox.policy.addresses import parse_address
from sandbox.policy.decision import Decision
from sandbox.policy.network import HOST_NAME

if TYPE_CHECKING:
    from sandbox.config.model import Network
    from sandbox.network.destination import Destination
    from sandbox.network.gate.setup import Setup
    from sandbox.policy.network import NetworkPolicy


class Judge:
    """The rules of one sandbox's network, as they are now."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup

    @property
    def network(self) -> Network:
        """The configuration; `update_network` replaces it."""
        return self._setup.network

    @property
    def policy(self) -> NetworkPolicy:
        """The same, compiled."""
        return self._setup.policy

    def judge(self, destination: Destination) -> Decision:
        """Whether the destination may be connected to, by the policy and by the policy script."""
        host, port = destination.host, destination.port
        if destination.named_by != "dns" and is_synthetic(host):
            return Decision(
                False,
                "network.allowed_hosts",
                "{host} no longer belongs to a name; resolve the name again",
                host=host,
            )
        decision = self.policy.connect(host, port)
        if not decision and destination.named_by != "hook" and self._granted(destination):
            decision = ask_owner.allowed(destination)
        scripted = self._scripted(host) if host != HOST_NAME else None
        if scripted is None or decision.rule.startswith("network.denied_hosts"):
            return decision
        if not scripted or decision:
            return decision if scripted else scripted
        # The script takes the place of a list that was not written. Where there is a list, both must agree.
        listed = self.network.allowed_hosts or self.network.preset != "closed"
        return decision if listed or parse_address(host) is not None else scripted

    def _granted(self, destination: Destination) -> bool:
        """Whether the owner was asked about it and allowed it until the sandbox ends."""
        if not self.network.ask or not self.policy.askable(destination.host, destination.port):
            return False
        return ask_owner.granted(self._setup.asks(), destination)

    def asks_about(self, destination: Destination, decision: Decision) -> bool:
        """Whether the owner is asked: only about what is refused because it is not listed."""
        return (
            not decision
            and self.network.ask
            and decision.rule == "network.allowed_hosts"
            and self.policy.askable(destination.host, destination.port)
        )

    def _scripted(self, host: str) -> Decision | None:
        if self.network.policy_script is None:
            return None
        return self._setup.interception().host_allowed(host)

    def intercepts(self, destination: Destination) -> bool:
        """Whether the gate reads what is sent, for a rule, a hook or a secret."""
        host = destination.host
        if host == HOST_NAME or self.policy.passes_raw(host, destination.port):
            return False
        return self.policy.intercepts(host) or self._setup.wants_interception(host)
