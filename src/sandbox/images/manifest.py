"""The manifest of images to download: versions, checksums and sizes, signed with Ed25519.

    {"version": "1.0.0",
     "artifacts": {"rootfs-minimal-amd64": {"url": "…", "sha256": "…", "size": 31000000}, …}}

The signature covers the manifest's bytes. It is in base64, at the manifest's URL with `.sig` appended.
"""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from sandbox.errors import ConfigError, ImageError
from sandbox.images import digests
from sandbox.images.oci import document

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SIGNATURE = ".sig"
MOST_ARTIFACTS, LARGEST = 1000, 64 << 30
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,100}")
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+-]{0,63}")


class Artifact:
    """A file that a manifest names."""

    __slots__ = ("url", "digest", "size")

    def __init__(self, url: str, digest: str, size: int) -> None:
        self.url = url
        self.digest = digest
        self.size = size


class Manifest:
    """The artifacts that can be downloaded."""

    def __init__(self, version: str, artifacts: Mapping[str, Artifact]) -> None:
        self.version = version
        self.artifacts = artifacts

    @classmethod
    def read(cls, data: bytes, url: str) -> Manifest:
        """Parses a manifest. `url` is its own URL, to which URLs in it may be relative. Raises ImageError."""
        said = document(data)
        version, listed = said.get("version"), said.get("artifacts")
        if not isinstance(version, str) or not _VERSION.fullmatch(version):
            raise ImageError("the manifest has no version")
        if not isinstance(listed, dict) or len(listed) > MOST_ARTIFACTS:
            raise ImageError("the manifest has no artifacts")
        return cls(version, {name: _artifact(name, one, url) for name, one in listed.items()})

    def artifact(self, name: str) -> Artifact:
        """The artifact of this name. Raises ImageError when there is none."""
        if name not in self.artifacts:
            raise ImageError("the manifest has no {name}", name=name)
        return self.artifacts[name]


def _artifact(name: str, said: object, url: str) -> Artifact:
    if not _NAME.fullmatch(name) or not isinstance(said, dict):
        raise ImageError("the manifest's {name} is not an artifact", name=ascii(name)[:100])
    where, digest, size = said.get("url"), said.get("sha256"), said.get("size")
    if not isinstance(where, str) or len(where) > 4096 or isinstance(size, bool) or not isinstance(size, int):
        raise ImageError("the manifest's {name} is not an artifact", name=name)
    if not 0 < size <= LARGEST:
        raise ImageError("the manifest's {name} is not an artifact", name=name)
    return Artifact(urljoin(url, where), digests.checked(f"sha256:{digest}"), size)


def written(version: str, artifacts: Mapping[str, Artifact]) -> bytes:
    """A manifest as bytes: the same for the same artifacts."""
    listed = {
        name: {"url": one.url, "sha256": one.digest.removeprefix("sha256:"), "size": one.size}
        for name, one in artifacts.items()
    }
    return json.dumps({"version": version, "artifacts": listed}, indent=2, sort_keys=True).encode() + b"\n"


def sign(data: bytes, private_key_pem: bytes) -> bytes:
    """The signature file's content. Raises ImageError for a key that is not Ed25519."""
    return base64.b64encode(_key(private_key_pem).sign(data)) + b"\n"


def public_key(private_key_pem: bytes) -> str:
    """The public key to put in `image_keys`. Raises ImageError."""
    return base64.b64encode(_key(private_key_pem).public_key().public_bytes_raw()).decode()


def _key(private_key_pem: bytes) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(private_key_pem, None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise ImageError(
            "the key is not an Ed25519 private key without a password; `openssl genpkey -algorithm ed25519`"
        )
    return key


def verify(data: bytes, signature: bytes, keys: Sequence[str]) -> None:
    """Raises ImageError unless one of the keys made the signature, and ConfigError for text that is not a key."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        made = base64.b64decode(signature.strip(), validate=True)
    except ValueError:
        raise ImageError("the manifest's signature is damaged") from None
    for text in keys:
        try:
            key = Ed25519PublicKey.from_public_bytes(base64.b64decode(text, validate=True))
        except ValueError:
            raise ConfigError(
                "{key!r} is not an Ed25519 public key in base64", key=text[:60], path="image_keys"
            ) from None
        try:
            key.verify(made, data)
            return
        except InvalidSignature:
            continue
    raise ImageError("the manifest is not signed by one of `image_keys`; nothing was downloaded")
