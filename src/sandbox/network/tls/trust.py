"""What tenants need to trust the sandbox's authority: files, the system files they cover, and variables.

There is no single place where programs look. Most read the system's bundle, so a bundle with our authority covers it.
Others (Node, Python's requests and pip, the AWS tools, Deno, …) have their own, and variables point them to ours. Java
reads a key store.
"""

from __future__ import annotations

import base64
import hashlib
import os
from typing import TYPE_CHECKING

from sandbox.network.tls.system_certificates import BUNDLES, JAVAS, KEY_STORES
from sandbox.plan.mount_operations import Bind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

DIRECTORY = "/etc"

BUNDLE_VARIABLES = (
    "SSL_CERT_FILE",  # OpenSSL, Python's ssl, httpx, Ruby, Go
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "npm_config_cafile",
    "AWS_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
)
EXTRA_VARIABLES = ("NODE_EXTRA_CA_CERTS", "DENO_CERT")  # these add to the program's own certificates


class TrustFiles:
    """What is added to a sandbox so that its tenants trust the authority."""

    def __init__(self) -> None:
        self.files: list[tuple[str, int, bytes]] = []  # path, mode, content
        self.covered: list[tuple[str, str]] = []  # an existing system file, and the one that covers it
        self.environment: dict[str, str] = {}

    def mounts(self) -> list[Bind]:
        """What covers the system's own files."""
        return [Bind(path, by, read_only=True, optional=True) for path, by in self.covered]


def trusted(
    authority: bytes,
    *,
    directory: str = DIRECTORY,
    read: Callable[[str], bytes | None] | None = None,
    real: Callable[[str], str] = os.path.realpath,
    key_stores: Sequence[str] = (),
) -> TrustFiles:
    """What makes tenants trust `authority` (PEM). `read` returns the content of a file in the system that tenants will
    see, or None; `real` returns its path without links. `key_stores`: further key stores of Java."""
    key_stores = KEY_STORES + tuple(key_stores) if read is not None else (*KEY_STORES, *_key_stores_of_their_own())
    read = read or _read
    # A mount must not have a symbolic link on its path, and several of these names are links to one file.
    bundles = {real(path): content for path in BUNDLES if (content := read(path)) is not None}
    system = next(iter(bundles.values()), b"")
    certificates = _certificates(system + b"\n" + authority)
    own, bundle, store = (f"{directory}/sandbox-{name}" for name in ("ca.pem", "ca-bundle.pem", "cacerts"))
    result = TrustFiles()
    result.files = [
        (own, 0o644, authority),
        (bundle, 0o644, system.rstrip(b"\n") + b"\n" + authority if system else authority),
        (store, 0o644, key_store(certificates)),
    ]
    stores = dict.fromkeys(real(path) for path in key_stores if read(path) is not None)
    result.covered = [*((path, bundle) for path in bundles), *((path, store) for path in stores)]
    result.environment = dict.fromkeys(BUNDLE_VARIABLES, bundle) | dict.fromkeys(EXTRA_VARIABLES, own)
    if not stores:
        # Every java prints a line about this variable, so it is set only where there is no key store to cover.
        result.environment["JAVA_TOOL_OPTIONS"] = f"-Djavax.net.ssl.trustStore={store}"
    return result


def key_store(certificates: Iterable[bytes], password: str = "changeit") -> bytes:
    """A Java key store (JKS, which every Java reads) that trusts `certificates` (DER). The password is Java's
    default and protects nothing: the store contains only public certificates."""
    listed = list(dict.fromkeys(certificates))
    created, kind = bytes(8), _text("X.509")
    parts = [b"\xfe\xed\xfe\xed", _number(2), _number(len(listed))]
    for at, one in enumerate(listed):
        parts += [_number(2), _text(f"trusted-{at}"), created, kind, _number(len(one)), one]
    body = b"".join(parts)
    digest = hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + body, usedforsecurity=False)
    return body + digest.digest()


def _number(value: int) -> bytes:
    return value.to_bytes(4, "big")


def _text(text: str) -> bytes:
    return len(text).to_bytes(2, "big") + text.encode()


def certificates_in(text: bytes) -> bytes:
    """Only the certificates in a PEM file: it may also contain a key."""
    begin, end = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"
    blocks = [block.partition(end) for block in text.split(begin)[1:]]
    return b"".join(begin + inner + mark + b"\n" for inner, mark, _ in blocks if mark)


def _certificates(pem: bytes) -> list[bytes]:
    found = []
    for block in pem.split(b"-----BEGIN CERTIFICATE-----")[1:]:
        try:
            found.append(base64.b64decode(block.partition(b"-----END CERTIFICATE-----")[0]))
        except ValueError:
            continue  # a damaged certificate in the system's bundle is not trusted, and does not stop a start
    return found


def _key_stores_of_their_own() -> list[str]:
    """Key stores of Java installations that do not use the system's, as real paths."""
    try:
        javas = sorted(os.listdir(JAVAS))
    except OSError:
        return []
    real = {os.path.realpath(f"{JAVAS}/{one}/lib/security/cacerts") for one in javas}
    return sorted(one for one in real if one not in KEY_STORES and os.path.exists(one))


def _read(path: str) -> bytes | None:
    try:
        with open(os.path.realpath(path), "rb") as file:
            return file.read(4 * 2**20)
    except OSError:
        return None
