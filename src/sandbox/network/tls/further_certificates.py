"""Certificates that tenants trust besides the gate's own: `network.ca_certificates`."""

from __future__ import annotations

from sandbox.errors import ConfigError
from sandbox.network.tls.trust import certificates_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_CERTIFICATES = 4 * 2**20


def further_certificates(files: Sequence[str]) -> bytes:
    """All certificates in these files. Raises ConfigError."""
    found = b""
    for file in files:
        try:
            with open(file, "rb") as opened:
                found += certificates_in(opened.read(_MOST_CERTIFICATES))
        except OSError as problem:
            raise ConfigError(
                "cannot read certificates from {name!r}: {problem}",
                name=file,
                problem=problem.strerror,
                path="network.ca_certificates",
            ) from None
    return found
