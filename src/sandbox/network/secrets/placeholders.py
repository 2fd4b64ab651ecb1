"""What a tenant has instead of a secret's value. Chosen when the sandbox starts, for use in its environment."""

from __future__ import annotations

from sandbox.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandbox.config.model import Secret

# Long enough never to occur by chance: a placeholder is replaced wherever it appears, and blocks a request to the wrong
# host.
_SHORTEST = 8
# Characters that URLs, forms, JSON, HTML and shells never escape.
PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def placeholders(secrets: Mapping[str, Secret]) -> dict[str, str]:
    """The placeholder of each secret: the configured one, or one derived from its name, the same in every run. Raises
    ConfigError for an invalid one."""
    found: dict[str, str] = {}
    for name, secret in secrets.items():
        text = secret.placeholder or f"SANDBOX_PLACEHOLDER_{_digest(name)}"
        path = f"network.secrets.{name}.placeholder"
        check_placeholder(text, path)
        for other, taken in found.items():
            if text in taken or taken in text:
                raise ConfigError("overlaps with the placeholder of {other!r}", other=other, path=path)
        found[name] = text
    return found


def _digest(name: str) -> str:
    """The same in every run, because programs remember which keys they have been allowed to use."""
    import hmac

    from sandbox.network.secrets.stored_key import placeholder_key

    return hmac.digest(placeholder_key(), f"secret\0{name}".encode(), "sha256")[:16].hex()


def check_placeholder(text: str, path: str) -> None:
    """Raises ConfigError for an invalid placeholder."""
    if len(text) < _SHORTEST or not PLAIN.issuperset(text):
        raise ConfigError(
            "must be at least {shortest} of the characters A-Z a-z 0-9 - . _ ~", shortest=_SHORTEST, path=path
        )
