"""Every spelling of an address is one address, and Milady's ranges and more are refused."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.policy.addresses import (
    blocked_range,
    format_address,
    is_blocked_private_or_link_local_ip,
    is_loopback_host,
    normalize_ip_for_policy,
    parse_address,
    parse_network,
)


@pytest.mark.parametrize(
    "spelling",
    [
        "127.0.0.1",
        "127.1",
        "127.0.1",
        "0x7f.1",
        "0x7f000001",
        "017700000001",
        "2130706433",
        "0177.0.0.01",
        "127.0.0.1.",
        "::ffff:127.0.0.1",
        "[::ffff:7f00:1]",
        "::FFFF:127.0.0.1",
        "0X7F.0.0.1",
    ],
)
def test_every_spelling_of_an_address_is_that_address(spelling: str) -> None:
    assert normalize_ip_for_policy(spelling) == "127.0.0.1"
    assert is_loopback_host(spelling)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "example.com",
        "1.2.3.4.5",
        "256.1.1.1",
        "1.2.3.256",
        "08.1.1.1",
        "1..2",
        "0xg",
        ":::",
        "1.2.3.4 x",
        "１.2.3.4",
        "4294967296",
        "-1.2.3.4",
        "1e3.1",
        "1_0.1.1.1",
    ],
)
def test_an_invalid_address_is_refused(text: str) -> None:
    assert parse_address(text) is None
    assert is_blocked_private_or_link_local_ip(text)
    with pytest.raises(ValueError):
        normalize_ip_for_policy(text)


@pytest.mark.parametrize(
    "ip",
    [
        "0.1.2.3",
        "169.254.169.254",
        "fe80::1",
        "febf::1",
        "::",
        "::1",
        "10.0.0.1",
        "127.0.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "fc00::1",
        "fdff::1",
        "::ffff:192.168.1.1",
        "::ffff:a00:1",
        "100.64.0.1",
        "100.127.255.255",
        "2002:0a00:0001::",
        "2002:808:808::1",
        "64:ff9b::10.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b:1::8.8.8.8",
        "2001::1",
        "224.0.0.1",
        "239.1.1.1",
        "ff02::1",
        "255.255.255.255",
        "240.0.0.1",
        "198.18.0.1",
        "198.19.255.255",
        "192.0.2.1",
        "198.51.100.1",
        "203.0.113.1",
        "::10.0.0.1",
        "::ffff:0:10.0.0.1",
        "2001:db8::1",
        "fd00:ec2::254",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "fe80::1%eth0",
        "0",
        "10.1",
        "0xa9fea9fe",
    ],
)
def test_private_local_and_translated_addresses_are_blocked(ip: str) -> None:
    assert is_blocked_private_or_link_local_ip(ip)


@pytest.mark.parametrize(
    "ip",
    [
        "8.8.8.8",
        "1.1.1.1",
        "172.15.0.1",
        "172.32.0.1",
        "192.167.0.1",
        "100.63.0.1",
        "100.128.0.1",
        "11.0.0.1",
        "2606:4700::1111",
        "2a00:1450::1",
        "64:ff9b::8.8.8.8",
        "::ffff:8.8.8.8",
    ],
)
def test_public_addresses_are_not(ip: str) -> None:
    assert not is_blocked_private_or_link_local_ip(ip)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST.", "app.localhost", "127.9.9.9", "::1", "[::1]"])
def test_loopback_hosts_are_known_by_name_and_address(host: str) -> None:
    assert is_loopback_host(host)


@pytest.mark.parametrize("host", ["localhost.example.com", "notlocalhost", "10.0.0.1", "::2", "example.com"])
def test_others_are_not_loopback(host: str) -> None:
    assert not is_loopback_host(host)


def test_metadata_and_link_local_can_be_opened_by_nothing() -> None:
    for ip in ("169.254.169.254", "0.0.0.0", "fe80::1", "::", "::1", "fd00:ec2::254", "fd20:ce::254"):
        address = parse_address(ip)
        assert address is not None
        found = blocked_range(address)
        assert found is not None and found.always


@given(st.ip_addresses(v=6))
def test_no_address_of_version_six_is_public_but_those_that_are_given_out(ip: ipaddress.IPv6Address) -> None:
    address = parse_address(str(ip))
    assert address is not None
    if ip not in ipaddress.ip_network("2000::/3") and address[0] == 128 and int(ip) >> 32 != 0x64FF9B << 64:
        assert blocked_range(address) is not None


@pytest.mark.parametrize("ip", ["200::1", "300::1", "4000::1", "8000::1", "::5efe:7f00:1"])
def test_networks_of_friends_are_not_public(ip: str) -> None:
    assert is_blocked_private_or_link_local_ip(ip)


@pytest.mark.parametrize(
    "text", ["10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1", "x/8", "::/129", "10.0.0.0/0x8"]
)
def test_a_network_must_be_exact(text: str) -> None:
    with pytest.raises(ValueError):
        parse_network(text)


@given(st.ip_addresses())
def test_reading_and_writing_agree_with_the_standard_library(
    ip: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    address = parse_address(str(ip))
    assert address is not None
    mapped = getattr(ip, "ipv4_mapped", None)
    assert format_address(address) == str(mapped or ip) or ipaddress.ip_address(format_address(address)) == ip


@given(st.integers(0, 2**32 - 1), st.integers(0, 3), st.sampled_from("dxo"))
def test_short_and_based_forms_mean_what_inet_aton_says(number: int, dots: int, base: str) -> None:
    write: dict[str, Callable[[int], str]] = {"d": str, "x": hex, "o": lambda n: "0" + format(n, "o")}
    front = [(number >> (24 - 8 * at)) & 255 for at in range(dots)]
    rest = number & (256 ** (4 - dots) - 1)
    assert parse_address(".".join(write[base](part) for part in [*front, rest])) == (32, number)


@given(st.text(max_size=60))
def test_no_text_breaks_the_reader(text: str) -> None:
    address = parse_address(text)
    if address is not None:
        assert parse_address(format_address(address)) == address
    is_loopback_host(text)
    is_blocked_private_or_link_local_ip(text)


@given(st.ip_addresses(v=6))
def test_what_the_standard_library_calls_private_is_blocked(ip: ipaddress.IPv6Address) -> None:
    if ip.is_private and not ip.ipv4_mapped:
        assert is_blocked_private_or_link_local_ip(str(ip)) or ip.is_global
