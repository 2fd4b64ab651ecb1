"""A certificate authority for the gate: the stored one (`stored_authority.py`), or one in memory.

All leaf certificates of an authority share a key that only this process has, so a leaf costs one signature. Python
loads a key only from a named file; `/dev/fd/N` of a pipe is a name that never touches a disk.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import os
from collections import OrderedDict
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sandbox.errors import ConfigError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator

DAY = datetime.timedelta(days=1)
# Apple refuses leaves valid for longer than 398 days, others follow; clocks inside may be a day off.
LEAF_LIFE, AUTHORITY_LIFE = 90 * DAY, 365 * DAY
MAX_LEAVES = 128
_MOST = 2**20  # bytes of a file with a certificate or a key


class Authority:
    """Signs a leaf for any name it is asked for, and remembers the last `MAX_LEAVES` of them."""

    def __init__(self, sandbox_name: str = "", *, kept: tuple[bytes, bytes] | None = None) -> None:
        """A new authority, or a stored one (`kept`: its key and certificate, PEM)."""
        self._key = ec.generate_private_key(ec.SECP256R1()) if kept is None else _private_key(kept[0])
        self._leaf_key = ec.generate_private_key(ec.SECP256R1())
        self._leaf_key_pem = self._leaf_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        self._certificate = self._sign_self(sandbox_name) if kept is None else x509.load_pem_x509_certificate(kept[1])
        self._contexts: OrderedDict[tuple[str, str], tuple[datetime.datetime, ssl.SSLContext]] = OrderedDict()

    @property
    def pem(self) -> bytes:
        """The authority's certificate, which tenants trust."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    @classmethod
    def load(cls, directory: str) -> Authority:
        """The authority of a stored generation. Raises OSError."""
        with open(f"{directory}/key.pem", "rb") as key, open(f"{directory}/sandbox-ca.pem", "rb") as certificate:
            return cls(kept=(key.read(), certificate.read()))

    @classmethod
    def chosen(cls, certificate: str | None, key: str | None, *, stored: str | None) -> Authority:
        """The given authority, else the stored one, else a new one. Raises ConfigError, OSError."""
        if (certificate, key) != (None, None):
            return cls.given(certificate, key)
        return cls.load(stored) if stored is not None else cls()

    @classmethod
    def given(cls, certificate: str | None, key: str | None) -> Authority:
        """An authority that the owner made. Raises ConfigError."""
        path = "network.authority_certificate" if certificate is None or key is not None else "network.authority_key"
        if certificate is None or key is None:
            raise ConfigError("network.authority_certificate and network.authority_key belong together", path=path)
        try:
            with open(os.path.expanduser(key), "rb") as secret, open(os.path.expanduser(certificate), "rb") as public:
                return cls.from_pem(secret.read(_MOST), public.read(_MOST))
        except (OSError, ValueError, TypeError) as problem:
            raise ConfigError(
                "cannot be used: {problem}", problem=getattr(problem, "strerror", None) or problem, path=path
            ) from None

    @classmethod
    def from_pem(cls, key: bytes, certificate: bytes) -> Authority:
        """The authority with this key and certificate. Raises ValueError."""
        found = cls(kept=(key, certificate))
        if found._certificate.public_key() != found._key.public_key():
            raise ValueError("the key is not the certificate's")
        return found

    def key_pem(self) -> bytes:
        """Its private key, for `stored_authority.py`."""
        return self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def context(self, host: str, protocol: str) -> ssl.SSLContext:
        """A server context that shows a leaf for `host` and speaks `protocol` (an ALPN name)."""
        wanted = (host, protocol)
        known, now = self._contexts.get(wanted), datetime.datetime.now(datetime.UTC)
        if known is not None and now - known[0] < LEAF_LIFE / 2:  # a sandbox may live for longer than a leaf
            self._contexts.move_to_end(wanted)
            return known[1]
        import ssl  # not above: the authority is needed long before the first handshake

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols([protocol])
        # No session tickets: programs in a sandbox are short-lived. And a client that rejects the certificate while
        # tickets are on their way resets the connection, which discards the alert that says why.
        context.num_tickets = 0
        with _readable(self._leaf(host) + self.pem) as chain, _readable(self._leaf_key_pem) as key:
            context.load_cert_chain(chain, key)
        self._contexts[wanted] = now, context
        self._contexts.move_to_end(wanted)
        if len(self._contexts) > MAX_LEAVES:
            self._contexts.popitem(last=False)
        return context

    def _sign_self(self, sandbox_name: str) -> x509.Certificate:
        words = f"sandbox {sandbox_name} (trusted inside sandboxes only)".replace("  ", " ")
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, words[:64])])
        public = self._key.public_key()
        return (
            _builder(name, name, public, AUTHORITY_LIFE)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def _leaf(self, host: str) -> bytes:
        # The name goes into the SAN only: a common name holds at most 64 characters, a host name up to 253.
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sandbox leaf")])
        public = self._leaf_key.public_key()
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        with contextlib.suppress(x509.ExtensionNotFound):  # an authority that somebody else made may have none
            given = self._certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
            authority = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(given)
        leaf = (
            _builder(name, self._certificate.subject, public, LEAF_LIFE)
            .add_extension(x509.SubjectAlternativeName([_general_name(host)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(authority, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return leaf.public_bytes(serialization.Encoding.PEM)


def _private_key(pem: bytes) -> ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey:
    key = serialization.load_pem_private_key(pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise ValueError("neither an RSA nor an elliptic-curve key")
    return key


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey | rsa.RSAPublicKey,
    life: datetime.timedelta,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + life)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


@contextlib.contextmanager
def _readable(data: bytes) -> Iterator[str]:
    """A file name from which `data` can be read once, without a file: OpenSSL opens the pipe by its number."""
    reading, writing = os.pipe()
    try:
        os.write(writing, data)  # a certificate chain is far below a pipe's capacity
        os.close(writing)
        writing = -1
        yield f"/dev/fd/{reading}"
    finally:
        os.close(reading)
        if writing >= 0:
            os.close(writing)
