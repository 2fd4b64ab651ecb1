"""Placeholders in the shape that programs expect of a token: its prefix, length and alphabet; a JWT with its claims.

A placeholder is derived from the person's own key and from where the token is kept, not from its value: it is the same
in every run, also after the token was renewed, and says nothing about the value beyond its shape.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

SHORTEST = 20  # characters; a shorter token's placeholder is made this long, so that it does not occur by chance

# Public prefixes by which programs tell tokens apart.
_PREFIX = re.compile(
    r"sk-ant-[a-z]{3,6}\d\d-|sk-(?:proj|svcacct|admin|None|or-v1|lf)-|sk-|pk-lf-|gh[a-z]_|github_pat_|glpat-|npm_|pypi-"
    r"|ya29\.|AIza|hf_|xai-|gsk_|r8_|rt_|fw_|pplx-|dop_v1_|xox[a-z]-|sgp_|sbp_|sgamp_(?:[a-z]{1,9}_)?|amp_|key_|crsr_"
    r"|ksk_|fk-|1//"
)
# A word, one separator and a long rest without any: the word is a prefix, not part of the secret. Passphrases differ.
_WORD = re.compile(r"[a-z]{2,8}[-_](?=[A-Za-z0-9]{24,}$)")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_JWT = re.compile(r"[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*")

# Claims that programs look for in a token. They identify an account, but none of them gives access to it. A person's
# name and address are not among them: no program we know needs them to work.
_CLAIMS = frozenset(
    (
        "iss", "aud", "azp", "sub", "typ", "token_use", "scope", "scp", "client_id", "user_id", "account_id", "org_id",
        "organization_id", "project_id", "plan", "plan_type", "account_plan", "chatgpt_account_id", "chatgpt_user_id",
        "chatgpt_account_user_id", "chatgpt_plan_type", "chatgpt_compute_residency",
    )
)  # fmt: skip
_HEADER = ("alg", "typ", "kid")
_DEEPEST = 4


def shaped(value: str, key: bytes, label: str) -> str:
    """The placeholder for `value`, which is kept at `label`. It consists of `A-Z a-z 0-9 - . _ ~` only."""
    claims = jwt_claims(value)
    if claims is not None:
        return _jwt(value, claims, key, label)
    prefix = _PREFIX.match(value) or _WORD.match(value)
    start = re.sub(r"[^A-Za-z0-9._-]", "_", prefix[0]) if prefix else ""
    rest = value[prefix.end() :] if prefix else value
    letters = _letters(_stream(key, label), _alphabet(rest))
    if _UUID.fullmatch(rest):
        return start + "-".join(_taken(letters, size) for size in (8, 4, 4, 4, 12))
    return start + _taken(letters, max(len(rest), SHORTEST))


def jwt_claims(value: str) -> dict[str, Any] | None:
    """The claims of a JWT; None when `value` is not a JWT."""
    if not _JWT.fullmatch(value):
        return None
    header, claims = (_object(part) for part in value.split(".")[:2])
    return claims if header is not None and "alg" in header else None


def looks_like_token(text: str) -> bool:
    """Whether `text` has the shape of a token: a JWT, or a known prefix."""
    prefix = _PREFIX.match(text)
    return bool(prefix and len(text) - prefix.end() >= 16 and " " not in text) or (jwt_claims(text) is not None)


def _jwt(value: str, claims: dict[str, Any], key: bytes, label: str) -> str:
    """A JWT with the harmless claims of `value`, and a signature that nobody made."""
    header, _, signature = value.split(".")
    head = _object(header) or {}
    first = _written({name: head[name] for name in _HEADER if isinstance(head.get(name), str)})
    second = _written(_harmless(claims, 0))
    letters = _letters(_stream(key, f"{label}\0{first}.{second}"), _ALPHANUMERIC)
    return f"{first}.{second}.{_taken(letters, max(len(signature), 43))}"


def _harmless(claims: dict[str, Any], depth: int) -> dict[str, Any]:
    """The part of `claims` that tenants see: numbers, booleans, the known strings, and the same from nested objects."""
    found: dict[str, Any] = {}
    for name, value in claims.items():
        if isinstance(value, bool | int | float) or value is None:
            found[name] = value
        elif isinstance(value, dict) and depth < _DEEPEST:
            found[name] = _harmless(value, depth + 1)
        elif name in _CLAIMS and _plain(value):
            found[name] = value
    return found


def _plain(value: object) -> bool:
    """Whether it is a string or a list of strings, none of which looks like a token."""
    each = value if isinstance(value, list) else [value]
    return all(isinstance(one, str) and len(one) <= 512 and not looks_like_token(one) for one in each)


def _object(part: str) -> dict[str, Any] | None:
    try:
        found = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _written(data: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(data, separators=(",", ":")).encode()).decode().rstrip("=")


_DIGITS, _LOWER = "0123456789", "abcdefghijklmnopqrstuvwxyz"
_ALPHANUMERIC = _LOWER.upper() + _LOWER + _DIGITS


def _alphabet(text: str) -> str:
    """The smallest alphabet that covers the letters and digits of `text`."""
    letters = set(text) - set("-._~")
    for alphabet in (_DIGITS, _DIGITS + "abcdef", _LOWER + _DIGITS, _LOWER.upper() + _DIGITS):
        if letters and letters <= set(alphabet):
            return alphabet
    return _ALPHANUMERIC


def _stream(key: bytes, label: str) -> Iterator[int]:
    number = 0
    while True:
        yield from hmac.digest(key, b"%d\0%s" % (number, label.encode()), "sha256")
        number += 1


def _letters(stream: Iterator[int], alphabet: str) -> Iterator[str]:
    fair = 256 - 256 % len(alphabet)
    return (alphabet[byte % len(alphabet)] for byte in stream if byte < fair)


def _taken(letters: Iterator[str], size: int) -> str:
    return "".join(next(letters) for _ in range(size))
