"""Whether a ClientHello names the host that its connection is for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.policy.addresses import parse_address
from sandbox.policy.decision import Decision
from sandbox.policy.hosts import InvalidHost, canonical_host

if TYPE_CHECKING:
    from sandbox.network.destination import Destination
    from sandbox.network.tls.client_hello import ClientHello
    from sandbox.policy.network import NetworkPolicy

RULE = "tls"


def judge_server_name(
    hello: ClientHello, destination: Destination, policy: NetworkPolicy, *, intercepted: bool
) -> Decision | None:
    """The refusal of a ClientHello that names a host other than its connection's; None when it may pass.

    Such a name is an attempt to reach a neighbour on a shared address. A connection to an address literal has no name
    to compare with, so it may name any host that is not denied. An intercepted connection must name exactly
    `destination.host`: upstream's certificate and every request are checked against that.
    """
    if hello.server_name is None:
        return None
    try:
        host = canonical_host(hello.server_name)
    except InvalidHost:
        return Decision(
            False, RULE, "the ClientHello for {destination} does not name a valid host", destination=destination
        )
    if host == destination.host:
        return None
    is_address = destination.named_by == "address" or parse_address(destination.host) is not None
    if is_address and not intercepted:
        denied = policy.name(host)
        return denied if denied.rule.startswith("network.denied_hosts") else None
    return Decision(
        False,
        RULE,
        "the connection is to {destination}, but its ClientHello names {host}",
        destination=destination,
        host=host,
    )
