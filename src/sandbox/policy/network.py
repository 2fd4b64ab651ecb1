"""A compiled network configuration: answers every question of the gate with a rule and a reason."""

from __future__ import annotations

from sandbox.config.network_presets import HOSTS as PRESET_HOSTS
from sandbox.errors import Message
from sandbox.policy.addresses import blocked_range, format_address, parse_address
from sandbox.policy.decision import Decision
from sandbox.policy.hosts import SSH, HostSet
from sandbox.policy.http import HttpRules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from sandbox.config.model import Network
    from sandbox.policy.addresses import Address, Range

HOST_NAME = "host.sandbox.internal"
SIGNER_NAME = "signer.sandbox.internal"  # answered by the gate itself if signing is enabled, otherwise refused


class NetworkPolicy:
    """Denied hosts win over allowed ones; only listed hosts are allowed. Hosts are canonical (`hosts.canonical_host`).

    Raises ConfigError, with the entry's path, when an entry cannot be understood.
    """

    def __init__(self, network: Network) -> None:
        self._allowed = HostSet(network.allowed_hosts, "network.allowed_hosts", raw=True)
        self._preset_name = network.preset
        self._preset = HostSet(PRESET_HOSTS[network.preset])
        self._denied = HostSet(network.denied_hosts, "network.denied_hosts")
        self._reasons = network.denied_reasons
        self._direct = HostSet(network.upstream_exceptions, "network.upstream_exceptions")
        self._through_socket = HostSet(network.proxy_socket_hosts, "network.proxy_socket_hosts")
        self.as_srt = network.refusals == "srt"
        # What a person has to edit: in srt's settings the lists have other names.
        self._allowing = "network.allowedDomains" if self.as_srt else "network.allowed_hosts"
        self._denying = "network.deniedDomains" if self.as_srt else "network.denied_hosts"
        self._http = HttpRules(network.http.allow, network.http.deny)
        self._secret_hosts = HostSet(
            (host for secret in network.secrets.values() for host in secret.hosts),
            "network.secrets.*.hosts",
            near_secret=True,
        )
        # The sandbox always has its own loopback; this setting is about the host's.
        self._localhost_ports = frozenset(network.localhost_ports if network.allow_localhost else ())
        self._block_private = network.block_private_ips
        self.intranet = network.intranet
        self._git = network.allow_git
        self._everything = network.intercept or bool(network.strip_response_headers)

    def name(self, host: str) -> Decision:
        """Whether the name may be resolved, that is, whether some port of it is allowed."""
        if host == HOST_NAME:
            return self._local(host, None)
        denied = next((one for one in self._denied.matching(host) if one.port is None), None)
        if denied is not None:
            return self._denied_by(denied.text, host)
        return self._listed(host, None)

    def connect(self, host: str, port: int) -> Decision:
        """Whether `host` is allowed on `port`. The addresses of a name are checked later."""
        shown = _joined(host, port)
        if host == HOST_NAME:
            return self._local(shown, port)
        if host == SIGNER_NAME:
            return Decision(False, "signing.enabled", "signing is not enabled for this sandbox")
        denied = self._denied.denies(host, port)
        if denied is not None:
            return self._denied_by(denied.text, shown)
        decision = self._listed(host, port)
        address = parse_address(host)
        if decision.allowed and address is not None:
            checked = self.addresses(host, port, [host])
            return decision if checked else checked
        return decision

    def _denied_by(self, entry: str, shown: str) -> Decision:
        rule, why = f"network.denied_hosts: {entry}", self._reasons.get(entry)
        if why is None:
            return Decision(False, rule, "{shown} is denied by {setting}", shown=shown, setting=self._denying)
        return Decision(False, rule, "{shown} is denied: {why}", shown=shown, why=why)

    def askable(self, host: str, port: int) -> bool:
        """Whether a connection is refused only because no entry allows it: then the owner may be asked.

        Denied hosts, private addresses, ports of the host, the signer and, without `allow_git`, ssh are refused for
        other reasons.
        """
        if host in (HOST_NAME, SIGNER_NAME) or (port == SSH and not self._git):
            return False
        if self._denied.denies(host, port) is not None or self._listed(host, port):
            return False
        return parse_address(host) is None or bool(self.addresses(host, port, [host]))

    def _listed(self, host: str, port: int | None) -> Decision:
        allowed = self._allowed.names(host) if port is None else self._allowed.allows(host, port)
        shown = _joined(host, port)
        if allowed is not None:
            return Decision(True, f"network.allowed_hosts: {allowed.text}", "{shown} is allowed", shown=shown)
        preset = self._preset.names(host) if port is None else self._preset.allows(host, port)
        if preset is not None:
            return Decision(
                True,
                f"network.preset: {preset.text}",
                "{shown} is one of the hosts of the network preset {preset}",
                shown=shown,
                preset=self._preset_name,
            )
        if port == SSH and self._git and (self._allowed.names(host) or self._preset.names(host)) is not None:
            return Decision(True, "network.allow_git", "ssh to {host} is allowed for git", host=host)
        ruled = self._http.allowing(host, port)
        if ruled and port != SSH:
            return Decision(
                True, f"network.http.allow: {ruled[0].text}", "some requests to {shown} are allowed", shown=shown
            )
        return Decision(False, "network.allowed_hosts", self._missing(host, port))

    def _missing(self, host: str, port: int | None) -> Message:
        shown, setting = _joined(host, port), self._allowing
        if port is not None and (self._allowed.names(host) or self._preset.names(host)) is not None:
            if port == SSH:
                return Message(
                    "{host} is allowed, but not for ssh; to allow it, set network.allow_git, or add {shown!r} to "
                    "{setting}",
                    host=host,
                    shown=shown,
                    setting=setting,
                )
            return Message(
                "{host} is allowed, but not on port {port}; to allow it, add {shown!r} to {setting}",
                host=host,
                port=port,
                shown=shown,
                setting=setting,
            )
        if parse_address(host) is not None:
            return Message(
                "the address {shown} is not allowed; use a name, or add {host!r} to {setting}",
                shown=shown,
                host=host,
                setting=setting,
            )
        return Message(
            "{shown} is not allowed; to allow it, add {host!r} to {setting}", shown=shown, host=host, setting=setting
        )

    def _local(self, shown: str, port: int | None) -> Decision:
        rule = "network.localhost_ports"
        if self._localhost_ports and (port is None or port in self._localhost_ports):
            return Decision(True, rule, "{shown} is a port of the host that the sandbox may connect to", shown=shown)
        return Decision(
            False,
            rule,
            "the sandbox may not connect to {shown}; to allow it, add the port to {setting}",
            shown=shown,
            setting=rule,
        )

    def addresses(self, host: str, port: int, addresses: Iterable[str]) -> Decision:
        """Whether `host` may be dialled, now that it resolved to `addresses`. One bad address refuses them all: a name
        with both public and private addresses is broken or an attack."""
        rule = "network.block_private_ips"
        for text in addresses:
            address = parse_address(text)
            if address is None:
                return Decision(False, rule, "{host} resolved to an invalid address", host=host)
            denied = self._denied.denies(format_address(address), port)
            if denied is not None:
                return self._denied_by(denied.text, f"{host} ({format_address(address)})")
            found = blocked_range(address)
            if found is not None and not self._excepted(address, port, found):
                shown = format_address(address)
                way = Message("it cannot be allowed")
                if not found.always:
                    way = Message("to allow it, add {address!r} to network.allowed_hosts", address=shown)
                return Decision(
                    False,
                    rule,
                    "{host} resolves to {address}, which is {kind} ({network}); {way}",
                    host=host,
                    address=shown,
                    kind=found.what,
                    network=found.text,
                    way=way,
                )
        return Decision(True, rule, "{host} resolves to public or explicitly allowed addresses", host=host)

    def dialled_directly(self, host: str, port: int) -> bool:
        """Whether connections to `host` do not go through the upstream proxy."""
        return self._direct.denies(host, port) is not None  # `denies`: an entry without a port means every port

    def through_socket(self, host: str, port: int) -> bool:
        """Whether connections to `host` go through the owner's proxy on a Unix socket."""
        return self._through_socket.denies(host, port) is not None

    def own_address(self, host: str, port: int, address: str) -> Decision:
        """Whether `host` may be dialled although it resolved to an address of this machine."""
        if any(one.port in (None, port) for one in self._allowed.matching(address)):
            return Decision(True, "network.allowed_hosts", "{host} is allowed by its address", host=host)
        return Decision(
            False,
            "network.intranet",
            "{host} resolves to {address}, which is this machine's own; to allow it, add {address!r} to "
            "network.allowed_hosts",
            host=host,
            address=address,
        )

    def _excepted(self, address: Address, port: int, found: Range) -> bool:
        """Whether an address in a blocked range is allowed all the same.

        Only an entry within that range is an exception: `0.0.0.0/0` does not allow 10.0.0.1."""
        if found.always or not self._block_private:
            return not found.always
        if self.intranet and found.intranet:
            return True
        return any(
            one.port in (None, port) and one.network is not None and one.network[2] >= found.prefix
            for one in self._allowed.matching(format_address(address))
        )

    def request(self, method: str, host: str, port: int, target: str) -> Decision:
        """Whether this HTTP request is allowed. For intercepted connections."""
        denial = self.request_denial(method, host, port, target)
        return denial if denial is not None else self.connect(host, port)

    def request_denial(self, method: str, host: str, port: int, target: str) -> Decision | None:
        """Why a request on an allowed connection is refused; None if it is not."""
        denial = self._http.denial(method, host, port, target)
        return Decision(False, *denial) if denial is not None else None

    def intercepts(self, host: str) -> bool:
        """Whether the configuration says to intercept connections to `host`."""
        return self._everything or self.intercepts_by_rule(host)

    def intercepts_by_rule(self, host: str) -> bool:
        """Whether a request rule or a secret names `host`, so that all its connections must be intercepted."""
        return self._http.about(host) or self._secret_hosts.names(host) is not None

    def passes_raw(self, host: str, port: int) -> bool:
        """Whether an entry such as `tcp:db.example.com:5432` exempts the connection from interception. Never true for a
        host that a request rule or a secret names."""
        if self.intercepts_by_rule(host):
            return False
        return any(one.raw and one.port == port for one in self._allowed.matching(host))


def _joined(host: str, port: int | None) -> str:
    if port is None:
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
