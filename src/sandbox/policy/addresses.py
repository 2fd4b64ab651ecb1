"""IP addresses for the policy: one canonical spelling, and the ranges that tenants should not reach.

Does without the `ipaddress` module, which takes longer to import than everything else a refused connection needs.
An address here is `(bits, number)`: `(32, 0x7f000001)` or `(128, 1)`.
"""

from __future__ import annotations

# Two functions that only calculate; the `socket` module around them would be I/O, and slow to import.
from _socket import AF_INET, AF_INET6, inet_ntop, inet_pton

from sandbox.errors import Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    Address = tuple[int, int]


class Range:
    """A range that is refused: always, or unless an entry of `allowed_hosts` names the address itself."""

    __slots__ = ("text", "bits", "network", "prefix", "what", "always", "intranet")

    def __init__(self, text: str, what: str, *, always: bool = False, intranet: bool = False) -> None:
        self.text = text
        self.what = what
        self.always = always
        self.intranet = intranet  # where an organisation's own servers are
        self.bits, self.network, self.prefix = parse_network(text)

    def __contains__(self, address: Address) -> bool:
        bits, number = address
        return bits == self.bits and not (number ^ self.network) >> (bits - self.prefix)


def parse_address(text: str) -> Address | None:
    """The address that `text` spells, in any form that a resolver or C library accepts; None if it is a name.

    Brackets and zone are dropped. `127.1`, `0x7f000001`, `017700000001` and `2130706433` are 127.0.0.1. An IPv4
    address inside `::ffff:0:0/96` is that IPv4 address, because the kernel connects to it as such.
    """
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    if ":" in text:
        return _parse_v6(text.partition("%")[0])
    number = _parse_v4(text.removesuffix("."))
    return None if number is None else (32, number)


def _parse_v6(text: str) -> Address | None:
    try:
        number = int.from_bytes(inet_pton(AF_INET6, text), "big")
    except (OSError, ValueError):
        return None
    if number >> 32 == 0xFFFF:
        return 32, number & 0xFFFFFFFF
    return 128, number


def _parse_v4(text: str) -> int | None:
    parts = text.split(".")
    if len(parts) > 4:
        return None
    numbers = [_number(part) for part in parts]
    if None in numbers:
        return None
    *front, last = [number for number in numbers if number is not None]
    if any(number > 255 for number in front) or last >= 256 ** (4 - len(front)):
        return None
    for at, number in enumerate(front):
        last += number << (24 - 8 * at)
    return last


def _number(text: str) -> int | None:
    """One part, as inet_aton reads it: 0x is hexadecimal, a leading 0 octal."""
    if not text.isascii() or not text.isalnum() or len(text) > 40:
        return None
    try:
        if text[:2] in ("0x", "0X"):
            return int(text[2:] or "0", 16)
        return int(text, 8 if text[0] == "0" else 10)
    except ValueError:
        return None


def format_address(address: Address) -> str:
    """The one spelling: dotted quads, and RFC 5952 for IPv6."""
    bits, number = address
    return inet_ntop(AF_INET if bits == 32 else AF_INET6, number.to_bytes(bits // 8, "big"))


def parse_network(text: str) -> tuple[int, int, int]:
    """`(bits, network, prefix)` of CIDR notation. Raises ValueError; bits beyond the prefix must be zero."""
    base, _, length = text.partition("/")
    address = parse_address(base)
    if address is None or not (length.isascii() and length.isdigit()) or int(length) > address[0]:
        raise ValueError(Message("{text!r} is not a network in CIDR notation", text=text))
    bits, number = address
    prefix = int(length)
    network = number >> (bits - prefix) << (bits - prefix)
    if network != number:
        raise ValueError(
            Message(
                "{text!r} has bits set beyond its prefix; write {network}/{prefix}",
                text=text,
                network=format_address((bits, network)),
                prefix=prefix,
            )
        )
    return bits, network, prefix


# Milady's two tables are the minimum. Nothing can open the first; an explicit entry can open the second.
BLOCKED: tuple[Range, ...] = (
    Range("0.0.0.0/8", Message("this network"), always=True),
    Range("169.254.0.0/16", Message("link-local, cloud metadata"), always=True),
    Range("168.63.129.16/32", Message("cloud metadata (Azure)"), always=True),
    Range("100.100.100.200/32", Message("cloud metadata (Alibaba)"), always=True),
    Range("192.0.0.192/32", Message("cloud metadata (Oracle)"), always=True),
    Range("fd00:ec2::/32", Message("cloud metadata (AWS)"), always=True),
    Range("fd20:ce::254/128", Message("cloud metadata (Google)"), always=True),
    Range("224.0.0.0/4", Message("multicast"), always=True),
    Range("240.0.0.0/4", Message("reserved, broadcast"), always=True),
    Range("::/128", Message("unspecified"), always=True),
    Range("::1/128", Message("loopback"), always=True),
    Range("fe80::/10", Message("link-local"), always=True),
    Range("ff00::/8", Message("multicast"), always=True),
    Range("10.0.0.0/8", Message("private"), intranet=True),
    Range("127.0.0.0/8", Message("loopback")),
    Range("172.16.0.0/12", Message("private"), intranet=True),
    Range("192.168.0.0/16", Message("private"), intranet=True),
    Range("fc00::/7", Message("unique local"), intranet=True),
    Range("100.64.0.0/10", Message("carrier-grade NAT"), intranet=True),
    Range("192.0.0.0/24", Message("protocol assignments")),
    Range("192.0.2.0/24", Message("documentation")),
    Range("198.18.0.0/15", Message("benchmarks")),
    Range("198.51.100.0/24", Message("documentation")),
    Range("203.0.113.0/24", Message("documentation")),
    Range("192.88.99.0/24", Message("6to4 relay")),
    Range("::/96", Message("IPv4-compatible")),
    Range("::ffff:0:0:0/96", Message("IPv4-translated")),
    Range("64:ff9b:1::/48", Message("NAT64, local use")),
    Range("100::/64", Message("discard")),
    Range("2001::/32", Message("Teredo")),
    Range("2001:2::/48", Message("benchmarks")),
    Range("2001:10::/28", Message("ORCHID")),
    Range("2001::/23", Message("protocol assignments")),
    Range("2001:db8::/32", Message("documentation")),
    Range("2002::/16", Message("6to4")),
    Range("3fff::/20", Message("documentation")),
    Range("5f00::/16", Message("segment routing")),
    Range("fec0::/10", Message("site-local")),
    # Only 2000::/3 is public. Some of the rest is in use by private overlay networks (200::/7).
    Range("::/3", Message("not public")),
    Range("4000::/2", Message("not public")),
    Range("8000::/1", Message("not public")),
)

_NAT64 = Range("64:ff9b::/96", Message("NAT64"))


def blocked_range(address: Address) -> Range | None:
    """The range for which `address` is refused, or None. A NAT64 address is checked by the IPv4 address in it."""
    if address in _NAT64:
        address = (32, address[1] & 0xFFFFFFFF)
    return next((one for one in BLOCKED if address in one), None)


def normalize_ip_for_policy(ip: str) -> str:
    """`ip` in the canonical spelling that rules use. Raises ValueError if it is not an address."""
    address = parse_address(ip.strip())
    if address is None:
        raise ValueError(Message("{ip!r} is not an IP address", ip=ip))
    return format_address(address)


def is_blocked_private_or_link_local_ip(ip: str) -> bool:
    """Whether `ip` is in a range that tenants should not reach. An invalid address is refused."""
    address = parse_address(ip.strip())
    return address is None or blocked_range(address) is not None


def is_loopback_host(host: str) -> bool:
    """Whether `host` is this machine: localhost and its subdomains, 127.0.0.0/8, ::1, in any spelling."""
    host = host.strip().lower()
    name = host.removesuffix(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    address = parse_address(host)
    return address is not None and (address == (128, 1) or (address[0] == 32 and address[1] >> 24 == 127))
