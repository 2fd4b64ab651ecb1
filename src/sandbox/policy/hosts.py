"""Host names and the entries of `allowed_hosts` and `denied_hosts`, in canonical form.

| entry                              | means                                       |
|------------------------------------|---------------------------------------------|
| `example.com`                      | that name, every port but 22                |
| `*.example.com`                    | its subdomains, not itself                  |
| `*`                                | every name, no address                      |
| `192.0.2.7`, `[2001:db8::7]`       | that address                                |
| `192.0.2.0/24`                     | a network                                   |
| `example.com:8443`, `192.0.2.7:22` | that port alone; `:*` is every port, also 22 |
| `tcp:db.example.com:5432`          | that port, any protocol, never intercepted  |
"""

from __future__ import annotations

from sandbox.errors import ConfigError, Message, message_of
from sandbox.policy.addresses import format_address, parse_address, parse_network

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from sandbox.policy.addresses import Address

# IDNA 2003 (Python's) and IDNA 2008 (browsers') encode these letters differently, as different names.
_DEVIATIONS = "ßς\u200c\u200d"
_LABEL = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")

# Entries without a port mean every port but this one: access to a web site should not include ssh.
SSH = 22
RAW = "tcp:"  # before an entry of `allowed_hosts`: the port's protocol is neither TLS nor HTTP


class InvalidHost(ValueError):
    """Not a valid host name or address."""


def canonical_host(text: str) -> str:
    """The one spelling of a host name (lower case, A-labels, no final dot) or address. Raises InvalidHost."""
    if len(text) > 1024:
        raise InvalidHost("the host name is too long")
    address = parse_address(text)
    if address is not None:
        return format_address(address)
    name = (_ascii(text) if not text.isascii() else text).lower().removesuffix(".")
    address = parse_address(name)  # full-width digits are digits by now
    if address is not None:
        return format_address(address)
    labels = name.split(".")
    if not 0 < len(name) <= 253 or not all(0 < len(one) <= 63 and _LABEL.issuperset(one) for one in labels):
        raise InvalidHost(Message("{text!r} is not a host name", text=text[:80]))
    if labels[-1].isdigit() or labels[-1].startswith("0x"):
        raise InvalidHost(Message("{text!r} is neither a name nor an address", text=text[:80]))
    return name


def _ascii(text: str) -> str:
    if any(letter in text for letter in _DEVIATIONS):
        raise InvalidHost(Message("programs disagree about which name {text!r} is; write it as xn--…", text=text[:80]))
    try:
        return text.encode("idna").decode("ascii")
    except UnicodeError:
        raise InvalidHost(Message("{text!r} is not a host name", text=text[:80])) from None


class HostPattern:
    """One entry. `host` is a name, "*.name", "*", or empty if `network` is set."""

    __slots__ = ("text", "host", "network", "port", "every_port", "raw")

    def __init__(self, text: str) -> None:
        self.text = text
        self.network: tuple[int, int, int] | None = None
        self.host = ""
        self.raw = text.startswith(RAW)
        body, port = _split_port(text.removeprefix(RAW))
        if self.raw and port in ("", "?", "*"):
            raise ConfigError("{text!r}: needs exactly one port, as in 'tcp:db.example.com:5432'", text=text)
        self.every_port = port == "*"
        self.port = None if port in ("", "*") else _port(port, text)
        try:
            self._read(body)
        except ValueError as problem:
            raise ConfigError(_hint(text, message_of(problem))) from None

    def _read(self, body: str) -> None:
        if body == "*":
            self.host = "*"
        elif body.startswith("*."):
            self.host = "*." + canonical_host(body[2:])
            if parse_address(body[2:]):
                raise ValueError("`*.` cannot come before an address; write a network, as in 10.0.0.0/8")
        elif "/" in body and parse_address(body.partition("/")[0].lstrip("[")) is not None:
            self.network = parse_network(body.removeprefix("[").removesuffix("]"))
        else:
            name = canonical_host(body)
            address = parse_address(name)
            if address is None:
                self.host = name
            else:
                self.network = (*address, address[0])

    def admits_port(self, port: int) -> bool:
        """Whether an allowing entry includes `port`. (A denying entry without a port includes all.)"""
        if self.port is not None:
            return port == self.port
        return self.every_port or port != SSH

    def __repr__(self) -> str:
        return f"HostPattern({self.text!r})"


def _split_port(text: str) -> tuple[str, str]:
    if text.startswith("["):
        body, bracket, rest = text.partition("]")
        if bracket and (not rest or rest.startswith(":")):
            return body + bracket, rest[1:]
        return text, ""
    if text.count(":") == 1:
        body, _, port = text.partition(":")
        return body, port or "?"
    return text, ""  # no port, or an IPv6 address without brackets


def _port(text: str, entry: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) < 65536:
        return int(text)
    raise ConfigError(_hint(entry, Message("{text!r} is not a port", text=text)))


def _hint(text: str, problem: str) -> str:
    if "://" in text:
        host = text.split("://")[1].split("/")[0]
        return Message("{text!r} is a URL; write only the host: {host!r}", text=text, host=host)
    if "*" in text[1:].removesuffix(":*"):
        return Message("{text!r}: `*` must be the whole entry or the first label, as in '*.example.com'", text=text)
    return Message("{text!r}: {problem}", text=text, problem=problem)


class HostSet:
    """Entries prepared for lookup: names and suffixes by dictionary, networks in order."""

    def __init__(self, entries: Iterable[str], path: str = "", *, raw: bool = False, near_secret: bool = False) -> None:
        """`raw`: whether entries may begin with `tcp:`, as entries of an allow-list may. Raises ConfigError; with
        `near_secret`, the error omits the entry itself, which may be a secret in the wrong place."""
        self._names: dict[str, list[HostPattern]] = {}
        self._networks: list[HostPattern] = []
        self.patterns: list[HostPattern] = []
        for at, text in enumerate(entries):
            try:
                one = HostPattern(text)
                if one.raw and not raw:
                    raise ConfigError("{text!r}: 'tcp:' is only for network.allowed_hosts", text=text)
            except ConfigError as problem:
                hidden = Message("is not a valid host; write it as in network.allowed_hosts")
                where = f"{path}[{at}]" if path else ""
                raise ConfigError(hidden if near_secret else problem.problem, path=where) from None
            self.patterns.append(one)
            if one.network is None:
                self._names.setdefault(one.host, []).append(one)
            else:
                self._networks.append(one)

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def matching(self, host: str) -> list[HostPattern]:
        """Every entry that matches the canonical `host`, the most exact first."""
        address = parse_address(host)
        if address is not None:
            return [one for one in self._networks if _within(address, one.network)]
        found = list(self._names.get(host, ()))
        rest = host
        while "." in rest:
            rest = rest.partition(".")[2]
            found += self._names.get("*." + rest, ())
        return found + self._names.get("*", [])

    def names(self, host: str) -> HostPattern | None:
        """The first entry that matches `host` on any port."""
        return next(iter(self.matching(host)), None)

    def allows(self, host: str, port: int) -> HostPattern | None:
        """The entry that allows `host` on `port`."""
        return next((one for one in self.matching(host) if one.admits_port(port)), None)

    def denies(self, host: str, port: int) -> HostPattern | None:
        """The entry that denies it. An entry without a port denies all of them."""
        return next((one for one in self.matching(host) if one.port in (None, port)), None)


def _within(address: Address, network: tuple[int, int, int] | None) -> bool:
    if network is None:
        return False
    bits, base, prefix = network
    return address[0] == bits and not (address[1] ^ base) >> (bits - prefix)
