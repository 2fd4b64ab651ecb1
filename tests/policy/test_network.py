"""The whole network policy: what is decided, by which rule, in which words."""

from __future__ import annotations

import pytest

from sandbox.config.model import Network
from sandbox.errors import ConfigError
from sandbox.policy.network import NetworkPolicy


def policy(**network: object) -> NetworkPolicy:
    return NetworkPolicy(Network.read(network))


def test_nothing_listed_allows_nothing_and_says_how_to_allow() -> None:
    decision = policy().connect("example.com", 443)
    assert not decision
    assert decision.rule == "network.allowed_hosts"
    assert "add 'example.com' to network.allowed_hosts" in decision.reason


def test_deny_beats_allow() -> None:
    rules = policy(allowed_hosts=["*.example.com"], denied_hosts=["evil.example.com"])
    assert rules.connect("good.example.com", 443)
    decision = rules.connect("evil.example.com", 443)
    assert not decision and decision.rule == "network.denied_hosts: evil.example.com"
    assert not rules.name("evil.example.com")


def test_a_name_denied_on_one_port_can_still_be_resolved() -> None:
    rules = policy(allowed_hosts=["example.com"], denied_hosts=["example.com:25"])
    assert rules.name("example.com")
    assert not rules.connect("example.com", 25)


def test_ssh_needs_allow_git_or_the_port() -> None:
    assert "allow_git" in policy(allowed_hosts=["github.com"], allow_git=False).connect("github.com", 22).reason
    assert policy(allowed_hosts=["github.com"], allow_git=True).connect("github.com", 22)
    assert policy(allowed_hosts=["github.com:22"], allow_git=False).connect("github.com", 22)
    assert not policy(allowed_hosts=["github.com"], allow_git=True).connect("evil.com", 22)


def test_an_address_is_allowed_only_as_an_address() -> None:
    rules = policy(allowed_hosts=["*", "8.8.8.8"])
    assert rules.connect("8.8.8.8", 443)
    assert "use a name" in rules.connect("1.1.1.1", 443).reason


@pytest.mark.parametrize(
    "answers", [["10.0.0.1"], ["8.8.8.8", "10.0.0.1"], ["::ffff:10.0.0.1"], ["garbage"], ["127.0.0.1"]]
)
def test_one_private_answer_refuses_them_all(answers: list[str]) -> None:
    decision = policy(allowed_hosts=["example.com"]).addresses("example.com", 443, answers)
    assert not decision and decision.rule == "network.block_private_ips"


def test_a_private_address_is_excepted_by_its_own_entry_only() -> None:
    assert policy(allowed_hosts=["a.test", "10.0.0.1"]).addresses("a.test", 443, ["10.0.0.1"])
    assert policy(allowed_hosts=["a.test", "10.0.0.0/24"]).addresses("a.test", 443, ["10.0.0.9"])
    assert not policy(allowed_hosts=["a.test", "10.0.0.1:80"]).addresses("a.test", 443, ["10.0.0.1"])
    assert not policy(allowed_hosts=["a.test", "0.0.0.0/0"]).addresses("a.test", 443, ["10.0.0.1"])
    assert not policy(allowed_hosts=["0.0.0.0/0"]).connect("10.0.0.1", 443)
    assert policy(allowed_hosts=["a.test"], block_private_ips=False).addresses("a.test", 443, ["10.0.0.1"])


def test_metadata_is_refused_whatever_the_configuration() -> None:
    rules = policy(allowed_hosts=["*", "169.254.169.254", "169.254.0.0/16"], block_private_ips=False)
    assert not rules.connect("169.254.169.254", 80)
    assert not rules.addresses("metadata.test", 80, ["169.254.169.254"])


def test_a_denied_address_is_denied_behind_a_name_too() -> None:
    rules = policy(allowed_hosts=["a.test"], denied_hosts=["8.8.8.0/24"])
    assert not rules.addresses("a.test", 443, ["8.8.8.8"])


def test_host_ports_are_reached_by_the_hosts_name_alone() -> None:
    rules = policy(localhost_ports=[5432])
    assert rules.connect("host.sandbox.internal", 5432)
    assert not rules.connect("host.sandbox.internal", 22)
    assert not policy(localhost_ports=[5432], allow_localhost=False).connect("host.sandbox.internal", 5432)
    assert not policy(allowed_hosts=["*"]).name("host.sandbox.internal")
    assert not policy(allowed_hosts=["*"]).connect("host.sandbox.internal", 80)


def test_hosts_with_rules_or_secrets_are_intercepted() -> None:
    rules = policy(
        allowed_hosts=["plain.test"],
        http={"allow": ["GET ruled.test/x"]},
        secrets={"KEY": {"value": "v", "hosts": ["*.secret.test"]}},
    )
    assert not rules.intercepts("plain.test")
    assert rules.intercepts("ruled.test") and rules.intercepts("a.secret.test")
    assert rules.connect("ruled.test", 443) and not rules.connect("a.secret.test", 443)
    assert not rules.request("POST", "ruled.test", 443, "/x")
    assert policy(intercept=True).intercepts("any.test")


def test_other_protocols_reach_an_intercepted_host_only_where_the_owner_said_so() -> None:
    rules = policy(allowed_hosts=["tcp:db.test:5432", "web.test"], intercept=True)
    assert rules.passes_raw("db.test", 5432)
    assert not rules.passes_raw("web.test", 5432)


@pytest.mark.parametrize(
    ("host", "port", "asked"),
    [
        ("new.test", 443, True),
        ("new.test", 22, True),
        ("8.8.8.8", 443, True),
        ("2001:4860:4860::8888", 443, True),
        ("listed.test", 443, False),  # nothing to ask
        ("listed.test", 22, False),
        ("one-port.test", 8443, True),  # listed for another port
        ("bad.test", 443, False),
        ("half-bad.test", 443, True),
        ("half-bad.test", 25, False),
        ("ruled.test", 443, False),  # its requests are judged one by one
        ("10.0.0.1", 443, False),
        ("169.254.169.254", 80, False),
        ("127.0.0.1", 80, False),
        ("::ffff:10.0.0.1", 80, False),
        ("fd00::1", 80, False),
        ("198.18.0.3", 80, False),
        ("host.sandbox.internal", 5432, False),
    ],
)
def test_the_owner_is_asked_only_about_what_is_not_listed(host: str, port: int, asked: bool) -> None:
    rules = policy(
        allowed_hosts=["listed.test", "one-port.test:443"],
        denied_hosts=["bad.test", "half-bad.test:25"],
        http={"allow": ["GET ruled.test/x"]},
    )
    assert rules.askable(host, port) is asked


def test_without_git_nobody_is_asked_about_ssh() -> None:
    assert not policy(allow_git=False).askable("new.test", 22)
    assert not policy(allow_git=False, allowed_hosts=["listed.test"]).askable("listed.test", 22)
    assert policy(allow_git=False).askable("new.test", 443)


def test_what_can_never_be_allowed_is_not_asked_about_even_without_private_addresses() -> None:
    assert policy(block_private_ips=False).askable("10.0.0.1", 80)
    assert not policy(block_private_ips=False).askable("169.254.169.254", 80)


def test_a_wrong_entry_names_its_place() -> None:
    with pytest.raises(ConfigError, match=r"network\.denied_hosts\[1\]"):
        policy(denied_hosts=["ok.test", "not ok"])


def test_an_intranet_is_reached_but_not_this_machine() -> None:
    found = policy(allowed_hosts=["wiki.corp.test", "10.9.9.9:3000"], intranet=True)
    assert found.addresses("wiki.corp.test", 443, ["10.1.2.3", "192.168.1.1", "fd00::1"])
    for address in ("127.0.0.1", "::1", "169.254.169.254", "0.0.0.0", "198.18.0.1", "fd00:ec2::254"):
        assert not found.addresses("wiki.corp.test", 443, [address]), address
    assert not policy(allowed_hosts=["wiki.corp.test"]).addresses("wiki.corp.test", 443, ["10.1.2.3"])
    # An address of this machine's own, as the dialer finds out, only where it is named itself.
    assert not found.own_address("wiki.corp.test", 443, "10.9.9.9") and found.own_address("x.test", 3000, "10.9.9.9")


def test_a_denied_host_is_refused_with_the_owners_reason() -> None:
    reasons = {"old.test": "use new.test", "*.other.test:22": "no ssh there"}
    found = policy(denied_hosts=["old.test", "*.other.test:22", "plain.test"], denied_reasons=reasons)
    assert found.connect("old.test", 443).reason == "old.test:443 is denied: use new.test"
    assert "no ssh there" in found.connect("a.other.test", 22).reason
    assert found.connect("plain.test", 443).reason == "plain.test:443 is denied by network.denied_hosts"


@pytest.mark.parametrize("denied", [["a.com:443", "*.com"], ["a.com:443", "*"], ["a.com:443", "a.com"], ["a.com:*"]])
def test_a_name_of_which_every_port_is_denied_is_not_resolved(denied: list[str]) -> None:
    assert not policy(allowed_hosts=["*"], denied_hosts=denied).name("a.com")
    assert policy(allowed_hosts=["*"], denied_hosts=["a.com:443", "a.com:80"]).name("a.com")


def test_nobody_is_asked_about_the_signer() -> None:
    assert not policy().askable("signer.sandbox.internal", 80)
    assert policy().askable("a.example", 80)
