"""What a tenant holds instead of a secret. Decided when the sandbox starts, so that its environment can name it."""

from __future__ import annotations

from sandbox.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandbox.config.model import Secret

# Short enough to fit where keys go, long enough never to occur by chance: a placeholder is replaced wherever it
# stands, and one that is seen on its way to the wrong host blocks the request.
_SHORTEST = 8
# What stands for itself in addresses, forms, JSON, HTML and shells: nobody escapes it on the way.
PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def placeholders(secrets: Mapping[str, Secret]) -> dict[str, str]:
    """The placeholder of each secret: its own, or a random one. Raises ConfigError for one that cannot serve."""
    from os import urandom

    found: dict[str, str] = {}
    for name, secret in secrets.items():
        text = secret.placeholder or f"SANDBOX_PLACEHOLDER_{urandom(16).hex()}"
        path = f"network.secrets.{name}.placeholder"
        check_placeholder(text, path)
        for other, taken in found.items():
            if text in taken or taken in text:
                raise ConfigError(f"overlaps with the placeholder of {other!r}", path=path)
        found[name] = text
    return found


def check_placeholder(text: str, path: str) -> None:
    """Raises ConfigError for a placeholder that cannot serve."""
    if len(text) < _SHORTEST or not PLAIN.issuperset(text):
        raise ConfigError(f"must be at least {_SHORTEST} of the characters A-Z a-z 0-9 - . _ ~", path=path)
