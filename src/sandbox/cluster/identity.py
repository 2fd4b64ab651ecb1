"""The identity of one side of a connection: a key that never leaves its process, and public certificates.

Each client and each agent makes its own. What they exchange by way of Ray is public: the certificate of an authority
that signed one certificate and whose key was then thrown away.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import os
import ssl
import sys
import tempfile

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFE = datetime.timedelta(days=365)
EARLIER = datetime.timedelta(hours=1)  # for other machines whose clocks are behind


class Identity:
    """One side. `authority` is the certificate that the other side trusts, in PEM; `digest` is that of our own."""

    def __init__(self, name: str, addresses: tuple[str, ...] = ()) -> None:
        """`addresses` are those of a server; a client has none."""
        signing = ec.generate_private_key(ec.SECP256R1())
        issuer = _named(f"{name} authority {os.urandom(8).hex()}")
        mine = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key())
        above = (
            _begun(issuer, issuer, signing.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(signing.public_key()), critical=False)
            .sign(signing, hashes.SHA256())
        )
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address(one)) for one in addresses]
        purpose = [ExtendedKeyUsageOID.SERVER_AUTH if addresses else ExtendedKeyUsageOID.CLIENT_AUTH]
        leaf = (
            _begun(_named(name), issuer, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purpose), critical=False)
            .add_extension(x509.SubjectAlternativeName(names or [x509.DNSName("client.invalid")]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(mine, critical=False)
            .sign(signing, hashes.SHA256())
        )
        self.authority = above.public_bytes(serialization.Encoding.PEM)
        self.digest = hashlib.sha256(leaf.public_bytes(serialization.Encoding.DER)).hexdigest()
        self._certificate = leaf.public_bytes(serialization.Encoding.PEM)
        self._key = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    @property
    def shown(self) -> tuple[bytes, str]:
        """What the other side is told about us."""
        return self.authority, self.digest

    def for_server(self) -> ssl.SSLContext:
        """A context that requires a certificate of every client. It trusts nobody until `admit` is called."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        self._load(context)
        return context

    def for_client(self, authority: bytes) -> ssl.SSLContext:
        """A context that trusts only the server of that authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        admit(context, authority)
        self._load(context)
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        """`ssl` reads keys only from files. This one is private and removed at once; on Linux it has no name."""
        if sys.platform == "linux":
            file = os.memfd_create("identity", os.MFD_CLOEXEC)
            try:
                os.write(file, self._key + self._certificate)
                context.load_cert_chain(f"/proc/self/fd/{file}")
            finally:
                os.close(file)
        else:
            with tempfile.NamedTemporaryFile() as named:
                named.write(self._key + self._certificate)
                named.flush()
                context.load_cert_chain(named.name)


def admit(context: ssl.SSLContext, authority: bytes) -> None:
    """Makes new connections trust what this authority signed. Raises ssl.SSLError, UnicodeDecodeError."""
    context.load_verify_locations(cadata=authority.decode("ascii"))


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _begun(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLIER)
        .not_valid_after(now + LIFE)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs, key_cert_sign=signs, crl_sign=signs, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
