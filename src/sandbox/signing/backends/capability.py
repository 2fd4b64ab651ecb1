"""How the deciding process orders a signature from the process with the key: each order is valid once.

An order has a number, one more than the last, and a MAC under a secret that the two have shared since the start. Access
to the pipe, or a copy of an earlier order, is not enough to order anything.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

from sandbox.signing import strict_json


def mac(secret: bytes, order: dict[str, Any]) -> str:
    return hmac.new(secret, strict_json.dumps(order), hashlib.sha256).hexdigest()


def sealed(secret: bytes, number: int, order: dict[str, Any]) -> bytes:
    """An order as it crosses the pipe."""
    numbered = {**order, "number": number}
    return strict_json.dumps({"order": numbered, "mac": mac(secret, numbered)}) + b"\n"


def opened(secret: bytes, last: int, line: bytes) -> dict[str, Any] | None:
    """The order after number `last`; None when this is not it."""
    try:
        given = strict_json.loads(line)
        order, told = given["order"], given["mac"]
        right = hmac.compare_digest(mac(secret, order), told) and order["number"] == last + 1
    except (ValueError, KeyError, TypeError):
        return None
    return order if right else None


def hash_of(kind: str, plain: dict[str, object]) -> str:
    """What an approval is bound to: every field that the signature covers."""
    return "0x" + hashlib.sha256(strict_json.dumps({"kind": kind, "request": plain})).hexdigest()
