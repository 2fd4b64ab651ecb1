"""Images from a registry, by the OCI distribution API: manifests by tag or digest, blobs by digest, token login.

Credentials are those of `docker login` or `podman login`, if they are stored in plain files. They are sent only to the
registry's own host, or to a token server in the registry's domain.
"""

from __future__ import annotations

import base64
import json
import os
import re
from typing import TYPE_CHECKING, BinaryIO, cast
from urllib.parse import urlencode, urlsplit

from sandbox.errors import ImageError
from sandbox.images import digests, manage
from sandbox.images.download import Wanted, blob_path, download, fetch_document
from sandbox.images.importing import unpack
from sandbox.images.oci import DOCUMENT, INDEXES, MANIFESTS, choose, document, this_architecture
from sandbox.images.progress import ShownProgress
from sandbox.images.web import ErrorStatus, Web
from sandbox.policy.addresses import is_loopback_host, parse_address

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandbox.config.model import Config
    from sandbox.images.names import Reference

_PARAMETER = re.compile(r'(\w+)="([^"\\]{0,2000})"')
LOGINS = ("~/.config/containers/auth.json", "~/.docker/config.json")


class Registry:
    """One repository of a registry."""

    def __init__(self, reference: Reference, certificates: list[str], shown: ShownProgress) -> None:
        scheme = "http" if is_loopback_host(reference.server.partition(":")[0]) else "https"
        self._base = f"{scheme}://{reference.server}/v2/{reference.path}"
        self._web = Web(self._base, certificates)
        self._reference = reference
        self._shown = shown
        self._authorization: str | None = None
        self.used: set[str] = set()  # paths of the blobs that were needed

    def manifest(self, wanted: str) -> bytes:
        """A manifest or index, by tag or digest. Raises ImageError."""
        url = f"{self._base}/manifests/{wanted}"
        accept = {"Accept": ", ".join((*INDEXES, *MANIFESTS))}
        try:
            data = fetch_document(self._web, url, DOCUMENT, accept, self._secret())
        except ErrorStatus as refused:
            self._log_in(refused)
            data = fetch_document(self._web, url, DOCUMENT, accept, self._secret())
        return digests.require(data, wanted) if wanted.startswith("sha256:") else data

    def read(self, digest: str, most: int) -> bytes:
        with open(self._blob(digest, None), "rb") as file:
            data = file.read(most + 1)
        if len(data) > most:
            raise ImageError("the image's description is too long")
        return digests.require(data, digest)

    def open(self, digest: str, size: int) -> BinaryIO:
        try:
            file = open(self._blob(digest, size), "rb")  # noqa: SIM115 - the caller's
        except FileNotFoundError:  # another process has finished with it and removed it
            file = open(self._blob(digest, size), "rb")  # noqa: SIM115
        return cast(BinaryIO, digests.Verified(file, digest, size))

    def _blob(self, digest: str, size: int | None) -> str:
        url = f"{self._base}/blobs/{digest}"
        self.used.add(blob_path(digest))
        if os.path.exists(blob_path(digest)):
            return blob_path(digest)
        if size is None:
            data = digests.require(fetch_document(self._web, url, DOCUMENT, None, self._secret()), digest)
            size = len(data)
        wanted = Wanted(url, digest, size, headers=self._secret)
        return download(self._web, wanted, self._shown.file(digest[7:19], size))

    def _secret(self) -> dict[str, str]:
        return {"Authorization": self._authorization} if self._authorization is not None else {}

    def _log_in(self, refused: ErrorStatus) -> None:
        """Answers a 401 with the login for this registry, or a token. Raises `refused` when that cannot help."""
        challenge = refused.headers.get("www-authenticate", "")
        kind, _, rest = challenge.partition(" ")
        login = _login(self._reference.host)
        if refused.status != 401 or self._authorization is not None:
            raise refused
        if kind.lower() == "basic" and login is not None:
            self._authorization = f"Basic {login}"
        elif kind.lower() == "bearer":
            self._authorization = f"Bearer {self._token(dict(_PARAMETER.findall(rest)), login)}"
        else:
            raise refused

    def _token(self, said: dict[str, str], login: str | None) -> str:
        asked = {"service": said.get("service", ""), "scope": f"repository:{self._reference.path}:pull"}
        url = f"{said.get('realm', '')}?{urlencode(asked)}"
        if login is not None and not self._is_of_the_registry(url):
            raise ImageError(
                "the registry {host} would have its login sent to another host ({url})",
                host=self._reference.host,
                url=ascii(url)[1:-1][:200],
            )
        headers = {"Authorization": f"Basic {login}"} if login is not None else {}
        answer = document(fetch_document(self._web, url, DOCUMENT, None, headers))
        token = answer.get("token") or answer.get("access_token")
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise ImageError("the registry's login gave no token")
        return token

    def _is_of_the_registry(self, url: str) -> bool:
        """Whether the host of `url` is the registry's, in its domain, or its parent domain, as example.com is for
        registry.example.com."""
        try:
            host = (urlsplit(url).hostname or "").lower()
        except ValueError:
            return False
        own = self._reference.host.partition(":")[0]
        if host in (own, self._reference.server.partition(":")[0]):
            return True
        if parse_address(own) is not None or "." not in host:
            return False
        return host.endswith(f".{own}") or own.partition(".")[2] == host


def pull(reference: Reference, config: Config, *, architecture: str | None = None) -> str:
    """Fetches and unpacks an image, and names it by its reference. Returns the digest. Raises ImageError."""
    with ShownProgress() as shown:
        registry = Registry(reference, config.network.ca_certificates, shown)
        data = registry.manifest(reference.wanted)
        found = choose(registry, data, architecture or this_architecture())
        digest = unpack(found, registry, source=str(reference))
    if reference.digest not in (None, digest) and architecture in (None, this_architecture()):
        manage.same(str(reference.digest), digest)  # the pin is that of an index; the image is this platform's
    manage.name(digest, str(reference))
    for path in registry.used:
        manage.forget_blob(path)  # it is unpacked
    return digest


def _login(host: str) -> str | None:
    """The user's login for a registry, as `user:password` in base64."""
    for auths in _login_files():
        entry = auths.get(host) or auths.get(f"https://{host}") or auths.get(f"https://{host}/v1/")
        login = entry.get("auth") if isinstance(entry, dict) else None
        if isinstance(login, str):
            try:
                base64.b64decode(login, validate=True)
            except ValueError:
                continue
            return login
    return None


def _login_files() -> Iterator[dict[str, object]]:
    named = os.environ.get("REGISTRY_AUTH_FILE")
    for path in ([named] if named else []) + list(LOGINS):
        try:
            with open(os.path.expanduser(path), encoding="utf-8") as file:
                auths = json.load(file).get("auths")
        except (OSError, ValueError, AttributeError):
            continue
        if isinstance(auths, dict):
            yield auths
