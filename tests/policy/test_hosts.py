"""What entries of allowed_hosts and denied_hosts mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import ConfigError
from sandbox.policy.hosts import HostPattern, HostSet, InvalidHost, canonical_host


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("Example.COM", "example.com"),
        ("example.com.", "example.com"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("BÜCHER.example.", "xn--bcher-kva.example"),
        ("example。com", "example.com"),
        ("１２７.0.0.1", "127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("[::1]", "::1"),
        ("::FFFF:10.0.0.1", "10.0.0.1"),
        ("_dmarc.example.com", "_dmarc.example.com"),
        ("localhost", "localhost"),
    ],
)
def test_a_host_has_one_spelling(text: str, canonical: str) -> None:
    assert canonical_host(text) == canonical
    assert canonical_host(canonical) == canonical


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "..",
        "a..b",
        "evil.com\0.good.com",
        "a b",
        "a/b",
        "user@host",
        "x:80",
        "a" * 64,
        "a." * 127 + "aa",
        "*",
        "*.x.com",
        "exa\nmple.com",
        "1.2.3.999",
        "foo.0x7f",
        "good.com%00",
        "straße.de",
        "[::1",
        "..com",
        "a\u200db.com",
    ],
)
def test_an_invalid_host_is_refused(text: str) -> None:
    with pytest.raises(InvalidHost):
        canonical_host(text)


ENTRIES = [
    ("example.com", "example.com", 443, True),
    ("example.com", "www.example.com", 443, False),
    ("example.com", "notexample.com", 443, False),
    ("EXAMPLE.com.", "example.com", 80, True),
    ("*.example.com", "www.example.com", 443, True),
    ("*.example.com", "a.b.example.com", 443, True),
    ("*.example.com", "example.com", 443, False),
    ("*.example.com", "badexample.com", 443, False),
    ("example.com:8443", "example.com", 8443, True),
    ("example.com:8443", "example.com", 443, False),
    ("*.example.com:8443", "www.example.com", 8443, True),
    ("*", "anything.example", 443, True),
    ("*", "8.8.8.8", 443, False),
    ("*", "2606:4700::1111", 443, False),
    ("8.8.8.8", "8.8.8.8", 53, True),
    ("8.8.8.8", "8.8.4.4", 53, False),
    ("8.8.8.8:443", "8.8.8.8", 80, False),
    ("10.0.0.0/8", "10.255.0.1", 80, True),
    ("10.0.0.0/8", "11.0.0.1", 80, False),
    ("10.0.0.0/8:80", "10.0.0.1", 80, True),
    ("10.0.0.0/8:80", "10.0.0.1", 81, False),
    ("[2606:4700::1111]", "2606:4700::1111", 443, True),
    ("[2606:4700::1111]:443", "2606:4700::1111", 80, False),
    ("2606:4700::/32", "2606:4700::1111", 443, True),
    ("[2606:4700::/32]:443", "2606:4700::1111", 443, True),
    ("0x7f.1", "127.0.0.1", 80, True),
    ("bücher.example", "xn--bcher-kva.example", 443, True),
    ("example.com", "example.com", 22, False),
    ("example.com:22", "example.com", 22, True),
    ("example.com:*", "example.com", 22, True),
]


@pytest.mark.parametrize(("entry", "host", "port", "expected"), ENTRIES)
def test_an_entry_allows_exactly_what_it_says(entry: str, host: str, port: int, expected: bool) -> None:
    assert (HostSet([entry]).allows(host, port) is not None) is expected


def test_a_denying_entry_without_a_port_denies_every_port() -> None:
    denied = HostSet(["example.com", "*.example.org:25"])
    assert denied.denies("example.com", 22)
    assert denied.denies("a.example.org", 25)
    assert not denied.denies("a.example.org", 443)


def test_nothing_listed_means_nothing() -> None:
    assert not HostSet([])
    assert HostSet([]).allows("example.com", 443) is None


@pytest.mark.parametrize(
    ("entry", "hint"),
    [
        ("https://example.com/x", "write only the host: 'example.com'"),
        ("api.*.com", "`*` must be the whole entry or the first label"),
        ("exam*ple.com", "`*` must be the whole entry"),
        ("*.1.2.3.4", "`*.` cannot come before an address"),
        ("example.com:99999", "not a port"),
        ("example.com:", "not a port"),
        ("10.0.0.5/8", "write 10.0.0.0/8"),
        ("a b", "not a host name"),
        ("", "not a host name"),
        ("1.2.3.999", "neither a name nor an address"),
    ],
)
def test_a_wrong_entry_says_what_to_write(entry: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=r".") as caught:
        HostSet(["good.example", entry], "network.allowed_hosts")
    assert hint in str(caught.value)
    assert "network.allowed_hosts[1]" in str(caught.value)


@given(st.text(max_size=80))
def test_canonical_hosts_stay_canonical_and_clean(text: str) -> None:
    try:
        host = canonical_host(text)
    except InvalidHost:
        return
    assert canonical_host(host) == host
    assert host.isascii() and host == host.lower() and not host.endswith(".")
    assert not set(host) & set("\0 /@\n%*")


@given(st.text(max_size=40))
def test_an_entry_is_understood_or_refused_as_a_mistake(text: str) -> None:
    try:
        HostPattern(text)
    except ConfigError:
        pass


@given(st.ip_addresses())
def test_no_wildcard_matches_an_address(ip: object) -> None:
    everything = HostSet(["*", "*.com", "*.arpa"])
    assert everything.allows(canonical_host(str(ip)), 443) is None
