"""The sandbox's own authority: leaves that the strictest verifiers accept, and keys that never touch a disk."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from sandbox.network.tls import ca
from sandbox.network.tls.ca import Authority
from tests.patience import assert_given_back, open_descriptors


def leaf(authority: Authority, host: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(authority._leaf(host))


def test_a_leaf_has_what_strict_verifiers_ask_for() -> None:
    authority = Authority("vm-1")
    issuer = x509.load_pem_x509_certificate(authority.pem)
    one = leaf(authority, "api.example.com")
    one.verify_directly_issued_by(issuer)
    get = one.extensions.get_extension_for_class
    assert get(x509.SubjectAlternativeName).value.get_values_for_type(x509.DNSName) == ["api.example.com"]
    assert get(x509.AuthorityKeyIdentifier).value.key_identifier is not None
    assert get(x509.SubjectKeyIdentifier).value.digest
    assert ExtendedKeyUsageOID.SERVER_AUTH in get(x509.ExtendedKeyUsage).value
    assert get(x509.KeyUsage).critical
    assert not get(x509.BasicConstraints).value.ca
    assert one.not_valid_after_utc - one.not_valid_before_utc <= datetime.timedelta(days=398)
    own = issuer.extensions.get_extension_for_class
    assert own(x509.BasicConstraints).value.path_length == 0
    assert own(x509.KeyUsage).value.key_cert_sign


@pytest.mark.parametrize("host", ["a" * 63 + "." + "b" * 63 + "." + "c" * 63 + ".example", "xn--bcher-kva.example"])
def test_long_and_international_names_have_leaves_too(host: str) -> None:
    assert Authority().context(host, "http/1.1")


def test_an_address_has_one_as_well() -> None:
    names = leaf(Authority(), "192.0.2.1").extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == ["192.0.2.1"]


def test_leaves_are_kept_but_not_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ca, "MAX_LEAVES", 3)
    authority = Authority()
    first = authority.context("h0.example", "h2")
    assert authority.context("h0.example", "h2") is first
    for number in range(1, 4):
        authority.context(f"h{number}.example", "h2")
    assert len(authority._contexts) == 3
    assert authority.context("h0.example", "h2") is not first


def test_a_leaf_is_renewed_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority()
    first = authority.context("h.example", "h2")
    monkeypatch.setattr(ca, "LEAF_LIFE", datetime.timedelta(0))  # half of a leaf's life is over
    assert authority.context("h.example", "h2") is not first


def test_two_sandboxes_do_not_trust_each_other() -> None:
    one, other = Authority("a"), Authority("b")
    with pytest.raises(Exception, match="."):
        leaf(one, "x.example").verify_directly_issued_by(x509.load_pem_x509_certificate(other.pem))


def test_no_key_is_written_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    named: list[str] = []
    load = ssl.SSLContext.load_cert_chain

    def watched(self: ssl.SSLContext, certfile: str, keyfile: str) -> None:
        named.extend((certfile, keyfile))
        load(self, certfile, keyfile)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", watched)
    before = open_descriptors()
    Authority().context("a.example", "h2")
    assert all(name.startswith("/dev/fd/") for name in named)
    assert list(tmp_path.iterdir()) == []
    assert_given_back(before)
