"""The process that holds the key. It runs behind walls: no network, no file of the host, only its two pipes.

The first line that it reads has the encrypted key and its password, the second the policy and a secret; orders follow.
It trusts an order as little as it can: the MAC and the number must be right (`backends/capability.py`), the hash must
match the request, and the same policy must allow it again, except for limits that need the history.
"""

from __future__ import annotations

import sys
from typing import Any

from sandbox.config.signing_section import Signing
from sandbox.policy.signing.checks import Asked, stateless
from sandbox.policy.signing.requests import read_request
from sandbox.policy.signing.rules import Rules
from sandbox.signing import strict_json
from sandbox.signing.backends.capability import hash_of, opened
from sandbox.signing.calls import arguments, keccak

_LONGEST = 8 * 2**20


class NotSigned(Exception):
    """The request is not signed; the text says why."""


class Holder:
    """The key, and what it may be used for."""

    def __init__(self, key: bytes, secret: bytes, rules: Rules) -> None:
        self._key = key
        self._secret = secret
        self._rules = rules
        self._number = 0

    def sign(self, line: bytes) -> str:
        """Carries an order out. Raises NotSigned."""
        from sandbox.signing.backends.ethereum import sign

        order = opened(self._secret, self._number, line)
        if order is None:
            raise NotSigned("this is not the next order")
        self._number += 1
        request = read_request(order["kind"], order["request"], keccak)
        if hash_of(order["kind"], request.plain()) != order["hash"]:
            raise NotSigned("the hash is of something else")
        verdict = stateless(Asked(request, arguments(request, self._rules)), self._rules)
        if not verdict.decision:
            raise NotSigned(f"{verdict.decision.rule}: {verdict.decision.reason}")
        if verdict.confirm and order["confirmed"] is not True:
            raise NotSigned("no person has approved it")
        return sign(self._key, request)


def unlocked(line: bytes) -> tuple[bytes, str]:
    """The key and its address. Raises NotSigned."""
    from sandbox.signing.backends.ethereum import library

    given = strict_json.loads(line, _LONGEST)
    if "error" in given:
        raise NotSigned(given["error"])
    account = library().Account
    try:
        key = bytes(account.decrypt(given["keystore"], given["password"]))
    except Exception:  # noqa: BLE001 - its text might have the password in it
        raise NotSigned("the keystore cannot be opened: a wrong password, or not a keystore") from None
    return key, str(account.from_key(key).address).lower()


def hold_memory() -> None:
    """Prevents core dumps, and access to this memory by other processes of the same user."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE


def main() -> None:
    hold_memory()
    read, write = sys.stdin.buffer, sys.stdout.buffer

    def say(told: dict[str, Any]) -> None:
        write.write(strict_json.dumps(told) + b"\n")
        write.flush()

    try:
        key, address = unlocked(read.readline(_LONGEST))
        given = strict_json.loads(read.readline(_LONGEST), _LONGEST)
        rules = Rules(Signing.read(given["signing"]), keccak, given["abis"])
        holder = Holder(key, bytes.fromhex(given["secret"]), rules)
    except Exception as problem:  # noqa: BLE001 - the reader gets the reason and ends
        say({"error": str(problem) if isinstance(problem, NotSigned) else type(problem).__name__})
        return
    say({"address": address})
    while line := read.readline(_LONGEST):
        try:
            say({"signature": holder.sign(line)})
        except Exception as problem:  # noqa: BLE001 - one order fails, the next may not
            say({"error": str(problem) if isinstance(problem, NotSigned) else type(problem).__name__})


if __name__ == "__main__":
    main()
