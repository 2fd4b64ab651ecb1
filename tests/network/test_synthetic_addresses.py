"""Synthetic addresses name hosts, one each, within bounds."""

from __future__ import annotations

import socket

from hypothesis import given
from hypothesis import strategies as st

from sandbox.network.gate.synthetic_addresses import SyntheticAddresses, is_synthetic
from sandbox.policy.addresses import is_blocked_private_or_link_local_ip


def text(addresses: tuple[bytes, bytes]) -> tuple[str, str]:
    return socket.inet_ntop(socket.AF_INET, addresses[0]), socket.inet_ntop(socket.AF_INET6, addresses[1])


def test_both_addresses_of_a_name_lead_back_to_it() -> None:
    names = SyntheticAddresses()
    four, six = text(names.addresses("a.test"))
    assert names.name_of(four) == names.name_of(six) == "a.test"
    assert text(names.addresses("a.test")) == (four, six)
    assert text(names.addresses("b.test")) != (four, six)


def test_addresses_that_were_not_given_out_name_nobody() -> None:
    names = SyntheticAddresses()
    names.addresses("a.test")
    for address in ("198.18.0.2", "198.18.1.1", "8.8.8.8", "2001:2::2:0", "198.18.0.255", "198.20.0.0", "garbage"):
        assert names.name_of(address) is None


def test_synthetic_addresses_are_never_real_hosts() -> None:
    names = SyntheticAddresses()
    for number in range(600):
        for address in text(names.addresses(f"n{number}.test")):
            assert is_synthetic(address) and is_blocked_private_or_link_local_ip(address)
    assert is_synthetic("198.18.0.2") and not is_synthetic("198.17.0.1") and not is_synthetic("8.8.8.8")


def test_the_table_is_bounded_and_drops_the_name_asked_for_longest_ago() -> None:
    names = SyntheticAddresses(capacity=3)
    first = text(names.addresses("a"))[0]
    names.addresses("b")
    names.addresses("c")
    names.addresses("a")
    second = text(names.addresses("d"))[0]
    assert len(names) == 3
    assert names.name_of(first) == "a" and names.name_of(second) == "d"


def test_an_address_in_use_stays_its_names_own() -> None:
    names = SyntheticAddresses(capacity=2)
    held = text(names.addresses("held"))[0]
    names.hold("held")
    for number in range(50):
        names.addresses(f"n{number}")
    assert names.name_of(held) == "held"
    names.release("held")
    names.addresses("x")
    names.addresses("y")
    assert names.name_of(held) is None


@given(st.lists(st.sampled_from([f"n{number}" for number in range(20)]), max_size=200))
def test_no_two_names_ever_share_an_address(asked: list[str]) -> None:
    names = SyntheticAddresses(capacity=5)
    for name in asked:
        four, six = text(names.addresses(name))
        assert names.name_of(four) == names.name_of(six) == name
        assert len(names) <= 5
